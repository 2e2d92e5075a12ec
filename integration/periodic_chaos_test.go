package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// The size of the scenario: so many rules that fire each second, for so long, with these
// random numbers.
const (
	ticksRules   = "MSCHEDULER_TICKS_RULES"
	ticksSeconds = "MSCHEDULER_TICKS_SECONDS"
	ticksSeed    = "MSCHEDULER_TICKS_SEED"
)

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

// tickWork is what the rules send: its arguments say what it does.
var tickWork = model.NewType[int, model.None]("chaos.tick")

// The kinds of rules, by their number modulo ten. The others let every tick run at once.
const (
	tickSkips   = 0 // while an earlier one runs
	tickQueues  = 1 // two at a time, five wait
	tickCancels = 2 // the earlier ones
	tickFails   = 3 // and each second failure costs a tick
	tickKinds   = 10
)

// tickLimits is how many runs of a rule may be under way at once.
var tickLimits = map[int]int{tickSkips: 1, tickQueues: 2, tickCancels: 1}

// tickRule is a rule as it was enabled.
type tickRule struct {
	kind  int
	first time.Time // tick
}

func tickSpec(n int, end time.Time) schedule.Spec {
	s := schedule.Spec{
		Name: fmt.Sprint("rule ", n), Cron: "* * * * * *", EndAt: end, Type: tickWork.Name(), Args: n % tickKinds,
		CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull, Window: 30 * 24 * time.Hour, Cap: 10_000},
		Options: model.Options{Retry: &model.Retry{Strategy: model.RetryNone}},
	}
	switch n % tickKinds {
	case tickSkips:
		s.Overlap = schedule.OverlapSkip
	case tickQueues:
		s.MaxConcurrency, s.QueueLimit = 2, 5
	case tickCancels:
		s.Overlap = schedule.OverlapCancelPrev
	case tickFails:
		s.OnFailure = schedule.FailureSkip
	}
	return s
}

// TestPeriodicChild is no test: it is what the processes of the scenario run.
func TestPeriodicChild(t *testing.T) {
	role, name, db := asChild(t, "engine", "ticks")
	if role == "engine" {
		p, err := periodic.New(periodic.Config{Database: db, EngineID: name, Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel)})
		require.NoError(t, err)
		require.NoError(t, p.Run(t.Context()))
		return
	}
	c, err := consumer.New(consumer.Config{Database: db, WorkerID: name, Concurrency: 2000})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, tickWork, func(ctx context.Context, task *consumer.Task[int]) (model.None, error) {
		if task.Args == tickFails {
			return model.None{}, errors.New("as it was told")
		}
		select { // so that runs end at any time of a second
		case <-time.After(rand.N(1500 * time.Millisecond)):
			return model.None{}, nil
		case <-ctx.Done():
			return model.None{}, ctx.Err()
		}
	}))
	require.NoError(t, c.Run(t.Context()))
}

// Three engines give every tick one record and at most one task, while at random moments
// one is killed, and another comes, and one stands still for so long that the others take
// its place. It takes real time: the engines are processes, and their clock is the machine's.
func TestEveryTickHasOneRecordAlthoughEnginesDieAndFreeze(t *testing.T) {
	t.Parallel()
	onEnginesAlone(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		seed := number(t, ticksSeed, int(time.Now().UnixNano()&0xffffff))
		count := number(t, ticksRules, e.Of(300, 40))
		lasts := time.Duration(number(t, ticksSeconds, 20)) * time.Second
		t.Logf("seed %d, %d rules, %v", seed, count, lasts)
		c := &tickChaos{arena: a, rand: rand.New(rand.NewPCG(uint64(seed), 0)), frozen: -1}
		a.process("TestPeriodicChild", "ticker", "ticks", a.e.URI)
		for n := range c.engines {
			c.ways[n] = a.slowly(time.Duration(20*(n+1)) * time.Millisecond)
			c.replace(n)
		}
		rules, end := a.tickRules(count, lasts)
		c.rage(end)
		a.awaitQuiet()
		a.checkTicks(rules, end)
	})))
}

// tickRules makes rules that fire until the returned time and enables them. It returns
// what there are, by their ids.
func (a *arena) tickRules(n int, lasts time.Duration) (rules map[string]tickRule, end time.Time) {
	a.t.Helper()
	p, err := periodic.New(periodic.Config{Database: a.db})
	require.NoError(a.t, err)
	// As long as the making of so many may take comes on top.
	end = a.store.Clock.Now().Add(lasts + time.Duration(n)*10*time.Millisecond).Truncate(time.Second)
	rules = map[string]tickRule{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	const makers = 8
	for m := range makers {
		wg.Go(func() {
			for i := m; i < n; i += makers {
				r, err := p.Create(a.t.Context(), tickSpec(i, end))
				if err == nil {
					r, err = p.Enable(a.t.Context(), r.ID, 0)
				}
				if err != nil {
					a.t.Error(err)
					return
				}
				mu.Lock()
				rules[r.ID] = tickRule{kind: i % tickKinds, first: r.NextFireAt}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(a.t, rules, n)
	return rules, end
}

// tickChaos is what happens to the engines.
type tickChaos struct {
	*arena
	rand    *rand.Rand
	engines [3]*fleet.Process
	ways    [3]string // their ways to the server
	frozen  int       // -1 = none
	started int
}

// slowly is a way to the server on which each command takes so long: between the reading of
// a rule and the decision about it there is time for others.
func (a *arena) slowly(each time.Duration) (uri string) {
	a.t.Helper()
	p, err := proxy.Start(a.e.URI)
	require.NoError(a.t, err)
	a.t.Cleanup(p.Close)
	p.Delay(each)
	return p.URI()
}

func (c *tickChaos) replace(n int) {
	c.started++
	c.engines[n] = c.process("TestPeriodicChild", fmt.Sprint("engine-", c.started), "engine", c.ways[n])
}

func (c *tickChaos) kill() {
	n := c.rand.IntN(len(c.engines))
	if n == c.frozen { // not that one: it shall wake
		n = (n + 1) % len(c.engines)
	}
	c.engines[n].Kill()
	c.replace(n)
}

func (c *tickChaos) freeze() {
	c.frozen = c.rand.IntN(len(c.engines))
	require.NoError(c.t, c.engines[c.frozen].Freeze())
}

func (c *tickChaos) thaw() {
	require.NoError(c.t, c.engines[c.frozen].Thaw())
	c.frozen = -1
}

// rage kills and freezes until the end. A freeze takes half a short scenario, in a long one
// longer than a minute, which is when an engine counts as frozen.
func (c *tickChaos) rage(end time.Time) {
	left := func() time.Duration { return end.Sub(c.store.Clock.Now()) }
	all := left()
	freeze := min(all/2, 70*time.Second)
	every := max(all/20, time.Second)
	var thaw time.Time
	for n := 0; left() > every; n++ {
		c.pass(every/2 + time.Duration(c.rand.Int64N(int64(every))))
		switch now := c.store.Clock.Now(); {
		case c.frozen >= 0 && now.After(thaw):
			c.thaw()
		case c.frozen < 0 && n%2 == 0 && left() > freeze:
			c.freeze()
			thaw = now.Add(freeze)
		default:
			c.kill()
		}
	}
	if c.frozen >= 0 {
		c.thaw()
	}
}

// pass lets time go by: half of the times until the ticks of a second are being decided.
func (c *tickChaos) pass(d time.Duration) {
	if c.rand.IntN(2) == 0 {
		now := c.store.Clock.Now()
		at := now.Add(d).Truncate(time.Second).Add(time.Second)
		d = at.Sub(now) + time.Duration(c.rand.Int64N(int64(100*time.Millisecond)))
	}
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// awaitQuiet waits until all rules have come to their end, and nothing is left to do. It
// waits as long as that goes on.
func (a *arena) awaitQuiet() {
	a.t.Helper()
	exists := bson.D{{Key: "$exists", Value: true}}
	a.awaitNone("periodic_runs", []left{
		{"rules that fire", "periodic_rules", bson.D{{Key: "status", Value: "online"}}},
		{"rules with runs", "periodic_rules", bson.D{{Key: "active.0", Value: exists}}},
		{"rules with runs that wait", "periodic_rules", bson.D{{Key: "queued.0", Value: exists}}},
		{"rules with plans", "periodic_rules", bson.D{{Key: "planned.0", Value: exists}}},
		{"rules that say so", "periodic_rules", bson.D{{Key: "planned_at", Value: exists}}},
		{"tasks that go on", "tasks", bson.D{{Key: "finished_at", Value: bson.D{{Key: "$exists", Value: false}}}, noSentinel}},
		{"tasks with an outbox", "tasks", bson.D{{Key: "outbox_at", Value: exists}, noSentinel}},
	})
}

// left is what may be left to do.
type left struct {
	what, collection string
	filter           bson.D
}

// awaitNone waits until nothing is left to do. It waits as long as that goes on: something
// becomes less, or there are more documents in the collection of what was done.
func (a *arena) awaitNone(done string, counts []left) {
	a.t.Helper()
	var before string
	deadline := time.Now().Add(chaosPatience)
	for {
		var some []string
		for _, c := range counts {
			n, err := a.db.Collection(c.collection).CountDocuments(a.t.Context(), c.filter)
			require.NoError(a.t, err)
			if n > 0 {
				some = append(some, fmt.Sprint(n, " ", c.what))
			}
		}
		text := strings.Join(some, ", ")
		if text == "" {
			return
		}
		n, err := a.db.Collection(done).EstimatedDocumentCount(a.t.Context())
		require.NoError(a.t, err)
		if now := fmt.Sprint(text, "; of ", n, " records"); now != before {
			before, deadline = now, time.Now().Add(chaosPatience)
		}
		require.True(a.t, time.Now().Before(deadline), "nothing moves: %s", before)
		time.Sleep(200 * time.Millisecond) // between two looks
	}
}
