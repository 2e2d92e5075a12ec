package integration

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// runEngine runs an engine of this process until it is stopped, or the test ends.
func (a *arena) runEngine(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(a.t, <-ended)
	})
	a.t.Cleanup(stop)
	return stop
}

// cutEach runs a scenario for each of the writes. It is cut off twice, before or after the server sees
// it: once for the driver, and once for its own second try. away is the way to the server on which that
// happens.
func cutEach(t *testing.T, writes map[string]proxy.Rule, scenario func(a *arena, away *mongo.Database, trap *proxy.Trap)) {
	t.Helper()
	for name, rule := range writes {
		for cut, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
			t.Run(name+" "+cut, func(t *testing.T) {
				onEnginesAtFullSize(t, withoutRace(slowInLong(func(t *testing.T, e Engine) {
					a := newArena(t, e)
					px, away := a.behind()
					rule := rule
					rule.Do, rule.Times = action, 2
					scenario(a, away, px.Set(rule))
				})))
			})
		}
	}
}

// frozenWork is what a process does that stands still, and what another one does without it.
type frozenWork struct {
	hand  func(name string, db *mongo.Database) (stop func()) // a process that does the work
	quiet func()                                              // waits until all is done
	check func()                                              // proves that it was done right
	seen  func() map[string]bson.M                            // all that is stored about it, by id
}

// freezeEach runs a scenario for each of the writes: a process stands still in it, before or after the
// server sees it, and another one does all the work. When the first one wakes up, it changes nothing.
func freezeEach(t *testing.T, writes map[string]proxy.Rule, begin func(a *arena) frozenWork) {
	t.Helper()
	for name, rule := range writes {
		for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
			t.Run(name+" "+when, func(t *testing.T) {
				onEnginesAtFullSize(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
					a := newArena(t, e)
					px, away := a.behind()
					rule := rule
					rule.Do = action
					trap := px.Set(rule)
					work := begin(a)
					stop := work.hand("frozen", away)
					select {
					case <-trap.Hit():
					case <-time.After(chaosPatience):
						require.FailNow(t, "the write never came")
					}
					rest := px.Set(proxy.Rule{Do: proxy.HoldBefore, Times: -1}) // nor does it do anything else
					work.hand("other", a.db)
					work.quiet()
					work.check()
					before := work.seen()
					trap.Release()
					rest.Release()
					stop()
					for id, doc := range work.seen() {
						require.Equal(t, before[id], doc, id)
					}
				})))
			})
		}
	}
}

// stored are the documents of collections whose ids contain that, as they are stored, by collection
// and id.
func (a *arena) stored(contains string, collections ...string) map[string]bson.M {
	a.t.Helper()
	out := map[string]bson.M{}
	for _, coll := range collections {
		cur, err := a.db.Collection(coll).Find(a.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: contains}}}})
		require.NoError(a.t, err)
		var docs []bson.M
		require.NoError(a.t, cur.All(a.t.Context(), &docs))
		for _, doc := range docs {
			out[coll+" "+doc["_id"].(string)] = doc
		}
	}
	return out
}

// killedWork is what a process does that is killed, and what another one does without it.
type killedWork struct {
	child func(uri string) *fleet.Process // a process that does the work
	goOn  func()                          // another one does it to its end
	check func()                          // proves that it was done right
}

// killEach runs a scenario for each of the writes: a process is killed in it, before or after the server
// sees it. That is for make long; another run tries one of them, at random.
func killEach(t *testing.T, writes map[string]proxy.Rule, begin func(a *arena) killedWork) {
	t.Helper()
	for name, rule := range writes { // in random order
		for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
			t.Run(name+" "+when, func(t *testing.T) {
				onEnginesInRealTime(t, inDepth(func(t *testing.T, e Engine) {
					a := newArena(t, e)
					px, _ := a.behind()
					rule := rule
					rule.Do = action
					trap := px.Set(rule)
					work := begin(a)
					child := work.child(px.URI())
					select {
					case <-trap.Hit():
					case <-time.After(chaosPatience):
						require.FailNow(t, "the write never came")
					}
					child.Kill()
					trap.Release()
					work.goOn()
					work.check()
				}))
			})
			if os.Getenv(longVariable) == "" {
				return
			}
		}
	}
}
