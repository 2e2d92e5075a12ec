package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Archive moves ended tasks whose retention is over to the history.
type Archive struct {
	Store *store.Store
	// Unpaced leaves the pauses out, and the end after a while: for people who wait for it.
	Unpaced bool
	// Moved hears of each batch. nil = nobody.
	Moved func(store.Archived)
}

// The archiver has one batch in flight and rests for eight times as long as that took before
// the next: on a server that is slow at the moment it is slow, too, because workers come
// first. While it moves it costs a saturated machine up to all of what that can do, so its
// share of the time bounds what workers lose: a ninth. Where tasks end faster than it moves them for
// long, tasks that nobody needs would pile up beside those that wait, so then it does not rest.
const (
	restFactor = 8
	// arrears is how late the oldest may be before it matters that more come than go.
	arrears = time.Hour
	// Others have their turn after that.
	archiveSlice = 10 * time.Second
)

// restAfter is how long to rest after a batch that took so long. late is how long ago it was
// due; advanced is by how much the batches since the first of this run are later due than
// that one, in the time that passed.
func restAfter(took, late, advanced, passed time.Duration) time.Duration {
	if late > arrears && advanced < passed {
		return 0
	}
	return restFactor * took
}

// Name implements [Job].
func (Archive) Name() string { return "archive" }

// Wanted implements [Job].
func (Archive) Wanted(c store.Chores) bool { return c.Archive }

// Run implements [Job]. Where there is much to do it stops after a while with [ErrMore].
func (j Archive) Run(ctx context.Context) error {
	local := j.Store.Local()
	began := clock.Read(local)
	var since, first time.Time
	if !j.Unpaced {
		since = j.Store.History.ArchiveSince()
	}
	for {
		start := clock.Read(local)
		batch, err := j.Store.History.Archive(ctx, since)
		if err != nil {
			return err
		}
		if j.Moved != nil && batch.Moved+batch.PutOff > 0 {
			j.Moved(batch)
		}
		if !batch.More {
			return nil
		}
		since = batch.Last
		if batch.Moved+batch.PutOff == 0 && batch.First.Equal(batch.Last) {
			since = since.Add(time.Millisecond) // all of them are held: the next batch would be the same
		}
		if first.IsZero() {
			first = batch.First
		}
		if j.Unpaced {
			continue
		}
		late := j.Store.Clock.Now().Sub(batch.Last)
		if !clock.Pause(ctx, restAfter(start.SinceMonotonic(local), late, batch.Last.Sub(first), began.SinceMonotonic(local))) {
			return nil // the process stops
		}
		if began.SinceMonotonic(local) > archiveSlice {
			return ErrMore
		}
	}
}

// All moves all that is due, in as many runs as it takes; nil when ctx ends first.
func (j Archive) All(ctx context.Context) error {
	for {
		if err := j.Run(ctx); !errors.Is(err, ErrMore) {
			return err
		}
	}
}
