package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

func TestRandomLivesKeepEveryPromise(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := &life{T: r, now: epoch, failed: failures{}}
		l.options = drawOptions(r)
		l.task = NewTask(drawDraft(l), l.now)
		l.ok(stateFault(l.task, l.eff(), l.now))
		r.Repeat(l.actions())
	})
}

// Whatever happened to a task, workers that go on claiming and failing come to an end.
func TestEveryTaskEnds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := &life{T: r, now: epoch, failed: failures{}}
		l.options = drawOptions(r)
		l.options.MaxErrorsPerWorker = 0 // a small fleet may run out of workers
		l.task = NewTask(Draft{Type: "t", Key: "k", Options: l.options}, l.now)
		eff := l.eff()
		most := (*eff.Retry.MaxErrors + 1 + eff.MaxLapses + 1 + 3) * 3
		executions := 0
		for i := 0; !l.task.Status.Ended(); i++ {
			if i > 10_000 {
				r.Fatalf("not ended: %v", l.trail)
			}
			if c := Expire(l.task, eff, l.now, 0.5); c != nil {
				l.did("expire", deepCopy(l.task), c)
				continue
			}
			before := OpenExecutions(l.task)
			l.claim()
			if OpenExecutions(l.task) > before {
				if executions++; executions > most {
					r.Fatalf("%d executions of a task with room for %d: %v", executions, most, l.trail)
				}
				continue
			}
			if w := l.worker(); rapid.Bool().Draw(r, "finish?") && l.openExec(l.task, w) != "" {
				kind := rapid.SampledFrom([]string{failkind.Error, failkind.Panic, failkind.Timeout, ""}).Draw(r, "kind")
				after, err := Finish(l.task, l.openExec(l.task, w), Outcome{Kind: kind}, eff, l.now, 0.5)
				l.ok(err)
				l.did("finish", deepCopy(l.task), after)
				continue
			}
			// Nothing to do now: to the next moment that the document names.
			next := l.task.LapseAt
			if !l.task.DueAt.IsZero() && (next.IsZero() || l.task.DueAt.Before(next)) {
				next = l.task.DueAt
			}
			require.False(r, next.IsZero(), "a task that has not ended names its next moment: %v", l.trail)
			l.now = clock.Later(l.now.Add(time.Millisecond), next)
		}
	})
}

// What makes a batch one statement: fresh tasks with equal options differ in nothing
// that a claim writes.
func TestClaimsOfFreshTasksAreOneStatement(t *testing.T) {
	o := model.Options{WorkerTimeout: 5 * time.Second}
	var first []byte
	for i, d := range []Draft{
		{Type: "t", Key: "a", Options: o},
		{Type: "t", Key: "b", Options: o, Tenant: "x", Start: epoch.Add(-time.Hour)},
		{Type: "u", Key: "c", Options: o, Priority: new(0), Args: bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}},
	} {
		task := NewTask(d, epoch.Add(-time.Duration(i)*time.Second))
		after, no := Claim(task, Claimant{WorkerID: "w", ExecID: "e"}, ResolveOptions(o), epoch)
		require.Empty(t, no)
		raw := codec.Diff(task, after)
		if first == nil {
			first = raw
		}
		require.Equal(t, bson.Raw(first).String(), raw.String())
	}
}

func TestDiffOfNothingIsEmpty(t *testing.T) {
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	require.Empty(t, codec.Diff(task, deepCopy(task)))
}

func TestRevisionsAndGenerationsRiseThroughAllLives(t *testing.T) {
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	rev := task.Rev
	var generations []int64
	for range 5 { // all within one millisecond
		var err error
		task, err = Cancel(task, "", ResolveOptions(), epoch)
		require.NoError(t, err)
		task, err = RetryNow(task, "", ResolveOptions(), epoch)
		require.NoError(t, err)
		generations = append(generations, task.Generation)
		require.Equal(t, rev+2, task.Rev)
		rev = task.Rev
	}
	require.True(t, slices.IsSorted(generations))
	require.Len(t, slices.Compact(generations), 5)
}
