package store

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/model"
)

// Two archivers that stop and go on anywhere, senders that begin new lives, deliveries
// that come late and tasks that are sent anew after they moved, in any order: at every
// moment a reader of both collections sees each life that ended once, as it last was, and
// in the end the history has them so.
func TestInWhateverOrderItHappensEachLifeIsKeptOnceAsItLastWas(t *testing.T) {
	p := newPast(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		keys := []string{fmt.Sprint("a", run), fmt.Sprint("b", run)}
		last := map[string]*model.Task{} // by life: as it last was
		note := func(task *model.Task) {
			last[lifeID(task.ID, task.Generation)] = task
		}
		var archivers [2]struct {
			lives  []*life
			copied bool
		}
		for range rapid.IntRange(3, 40).Draw(rt, "steps") {
			key := rapid.SampledFrom(keys).Draw(rt, "key")
			id := model.TaskID("", "t", key)
			present, err := p.Tasks.ByIDs(t.Context(), []string{id})
			if err != nil {
				rt.Fatal(err)
			}
			task := present[id]
			switch step := rapid.IntRange(0, 6).Draw(rt, "step"); {
			case step == 0 && task == nil:
				note(p.undelivered(key))
			case step == 1 && task != nil && task.Status.Ended():
				p.again(key)
			case step == 2 && task != nil && !task.Status.Ended(): // what the new life does, long ago
				end := *task
				end.Status, end.FinishedAt, end.ArchiveAt = model.StatusCompleted, p.Clock.Now().Add(-8*day), p.Clock.Now().Add(-day)
				end.DueAt, end.Audience = time.Time{}, nil
				end.Rev++
				note(p.change(id, func(*model.Task) *model.Task { return &end }))
			case step == 3 && task != nil && task.Status == model.StatusCompleted:
				note(p.delivered(id))
			case step >= 4:
				a := &archivers[rapid.IntRange(0, 1).Draw(rt, "archiver")]
				switch {
				case a.lives == nil:
					a.lives, a.copied = p.read(), false
				case !a.copied:
					p.copyAll(a.lives)
					a.copied = true
				default:
					if rapid.IntRange(0, 3).Draw(rt, "dies") > 0 {
						p.delete(a.lives)
					}
					a.lives = nil
				}
			}
			p.seen(rt, last)
		}
		for _, a := range archivers { // frozen until now
			if a.lives != nil {
				p.copyAll(a.lives)
				p.delete(a.lives)
			}
		}
		p.archive()
		got := p.kept()
		for id, task := range last {
			if want := fmt.Sprint(task.Rev, " ", task.Status); got[id] != want {
				rt.Fatalf("life %s is kept as %q; want %q", id, got[id], want)
			}
		}
		if len(got) != len(last) {
			rt.Fatalf("%d lives ended, %d are kept: %v", len(last), len(got), got)
		}
		if _, err := p.tasks.DeleteMany(t.Context(), bson.D{}); err != nil {
			rt.Fatal(err)
		}
		if _, err := p.history.DeleteMany(t.Context(), bson.D{}); err != nil {
			rt.Fatal(err)
		}
	})
}

// seen checks what a reader of tasks and history finds.
func (p *past) seen(rt *rapid.T, last map[string]*model.Task) {
	found := map[string]string{}
	// One by one: a copy of what is Success by now may still say Completed.
	for _, status := range []model.Status{model.StatusCompleted, model.StatusSuccess} {
		page, err := p.History.FindLives(p.t.Context(), Filter{Statuses: []model.Status{status}}, InBoth, Extent{Limit: 1000})
		if err != nil {
			rt.Fatal(err)
		}
		for _, raw := range page.Docs {
			k := keyOf(raw)
			found[lifeID(k.id, k.generation)] += fmt.Sprint(raw.Lookup("rev").AsInt64(), " ", raw.Lookup("status").StringValue())
		}
	}
	for id, task := range last {
		if want := fmt.Sprint(task.Rev, " ", task.Status); found[id] != want {
			rt.Fatalf("a reader sees life %s as %q; want %q", id, found[id], want)
		}
	}
	if len(found) != len(last) {
		rt.Fatalf("%d lives ended, a reader sees %v", len(last), found)
	}
}
