package decision

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// perCommand is how many tasks one command concerns.
	perCommand = 1000
	// maxTries is how often a change is made anew when somebody else changed the task in between.
	maxTries = 50
)

// ChangeTasks changes tasks, many in one command. change returns what a task shall be, or the task
// itself where nothing is to change; it may be asked again when somebody else changes the task in
// between. Tasks that are gone, and those that cannot be read, are left out: a person mends them.
// held says why tasks are not changed: somebody's open transaction holds them ([store.ErrHeld]), or the server refuses.
func ChangeTasks(ctx context.Context, st *store.Store, doing string, ids []string, change func(*model.Task) *model.Task) (held map[string]error, err error) {
	held = map[string]error{}
	for ; len(ids) > perCommand; ids = ids[perCommand:] {
		some, err := ChangeTasks(ctx, st, doing, ids[:perCommand], change)
		if maps.Copy(held, some); err != nil {
			return held, err
		}
	}
	for tries := 0; len(ids) > 0; tries++ {
		if tries == maxTries {
			return held, fmt.Errorf("%s, %s among them: %d attempts conflicted with other changes", doing, ids[0], tries)
		}
		tasks, err := st.Tasks.ByIDs(ctx, ids)
		if err != nil {
			return held, fmt.Errorf("%s: %w", doing, err)
		}
		ids = nil // but for those that must be looked at again
		var writes []store.Write
		for _, t := range tasks {
			if t == nil {
				continue
			}
			if after := change(t); after != t {
				writes, ids = append(writes, store.Write{Before: t, After: after}), append(ids, t.ID)
			}
		}
		written, err := st.Tasks.Writes(ctx, writes, store.Patience)
		if err != nil {
			return held, fmt.Errorf("%s: %w", doing, err)
		}
		for i, w := range written {
			switch {
			case w.Refused != nil:
				held[writes[i].After.ID] = w.Refused
			case w.Held:
				held[writes[i].After.ID] = store.ErrHeld
			case !w.Applied:
				continue
			}
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == writes[i].After.ID })
		}
	}
	return held, nil
}

// FirstLife returns a function for a change that one [ChangeTasks] may ask for again. It reports whether a task is in the
// life in which it was asked about first: a person may have begun another one since.
func FirstLife() func(*model.Task) bool {
	first := map[string]int64{}
	return func(t *model.Task) bool {
		generation, asked := first[t.ID]
		if !asked {
			first[t.ID] = t.Generation
		}
		return !asked || generation == t.Generation
	}
}
