package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
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

func tickSpec(n int, end time.Time) periodic.Spec {
	s := periodic.Spec{
		Name: fmt.Sprint("rule ", n), Cron: "* * * * * *", EndAt: end, Type: tickWork.Name(), Args: n % tickKinds,
		CatchUp: model.CatchUp{Mode: model.CatchUpFull, Window: 30 * 24 * time.Hour, Cap: 10_000},
		Options: model.Options{Retry: &model.Retry{Strategy: model.RetryNone}},
	}
	switch n % tickKinds {
	case tickSkips:
		s.Overlap = model.OverlapSkip
	case tickQueues:
		s.MaxConcurrency, s.QueueLimit = 2, 5
	case tickCancels:
		s.Overlap = model.OverlapCancelPrev
	case tickFails:
		s.OnFailure = model.FailureSkip
	}
	return s
}

// TestPeriodicChild is no test: it is what the processes of the scenario run.
func TestPeriodicChild(t *testing.T) {
	role := os.Getenv(childRole)
	if role != "engine" && role != "ticks" {
		t.Skip("only in a child process")
	}
	client, err := engine.Client(os.Getenv(childURI))
	require.NoError(t, err)
	db, name := client.Database(os.Getenv(childDB)), os.Getenv(childName)
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
// its place.
func TestEveryTickHasOneRecordAlthoughEnginesDieAndFreeze(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		seed := number(t, ticksSeed, int(time.Now().UnixNano()&0xffffff))
		count := number(t, ticksRules, e.Of(60, 40))
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
	})
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
					r, err = p.Enable(a.t.Context(), r.ID)
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
	engines [3]*exec.Cmd
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
	require.NoError(c.t, c.engines[n].Process.Kill())
	_ = c.engines[n].Wait() // it was killed: that is its error
	c.replace(n)
}

func (c *tickChaos) freeze() {
	c.frozen = c.rand.IntN(len(c.engines))
	require.NoError(c.t, c.engines[c.frozen].Process.Signal(syscall.SIGSTOP))
}

func (c *tickChaos) thaw() {
	require.NoError(c.t, c.engines[c.frozen].Process.Signal(syscall.SIGCONT))
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
	counts := []struct {
		what, collection string
		filter           bson.D
	}{
		{"rules that fire", "periodic_rules", bson.D{{Key: "status", Value: "online"}}},
		{"rules with runs", "periodic_rules", bson.D{{Key: "active.0", Value: exists}}},
		{"rules with runs that wait", "periodic_rules", bson.D{{Key: "queued.0", Value: exists}}},
		{"rules with plans", "periodic_rules", bson.D{{Key: "planned.0", Value: exists}}},
		{"rules that say so", "periodic_rules", bson.D{{Key: "planned_at", Value: exists}}},
		{"tasks that go on", "tasks", bson.D{{Key: "finished_at", Value: bson.D{{Key: "$exists", Value: false}}}}},
		{"tasks to be told of", "tasks", bson.D{{Key: "outbox_at", Value: exists}}},
	}
	var before string
	deadline := time.Now().Add(chaosPatience)
	for {
		var left []string
		for _, c := range counts {
			n, err := a.db.Collection(c.collection).CountDocuments(a.t.Context(), c.filter)
			require.NoError(a.t, err)
			if n > 0 {
				left = append(left, fmt.Sprint(n, " ", c.what))
			}
		}
		text := strings.Join(left, ", ")
		if text == "" {
			return
		}
		done, err := a.db.Collection("periodic_runs").EstimatedDocumentCount(a.t.Context())
		require.NoError(a.t, err)
		if now := fmt.Sprint(text, "; of ", done, " records"); now != before {
			before, deadline = now, time.Now().Add(chaosPatience)
		}
		require.True(a.t, time.Now().Before(deadline), "nothing moves: %s", before)
		time.Sleep(200 * time.Millisecond) // between two looks
	}
}

// seenRun is a record as the checker reads it, and seenTask a task.
type seenRun struct {
	ID      string    `bson:"_id"`
	Rule    string    `bson:"rule_id"`
	Nominal time.Time `bson:"nominal"`
	Last    time.Time `bson:"last"`
	Count   int64     `bson:"count"`
	Status  string    `bson:"status"`
	Task    string    `bson:"task_id"`
}

type seenTask struct {
	ID         string    `bson:"_id"`
	TaskID     string    `bson:"task_id"` // in the history
	Generation int64     `bson:"generation"`
	Status     string    `bson:"status"`
	CreatedAt  time.Time `bson:"created_at"`
	FinishedAt time.Time `bson:"finished_at"`
	Origin     struct {
		Rule string `bson:"id"`
		Tick struct {
			Run     string    `bson:"run"`
			Nominal time.Time `bson:"nominal"`
		} `bson:"tick"`
	} `bson:"origin"`
}

// checkTicks proves, from what is stored alone, that each second of each rule from its first
// tick to the end is covered by one record, and has at most one task.
func (a *arena) checkTicks(rules map[string]tickRule, end time.Time) {
	a.t.Helper()
	tasks := a.seenTasks()
	perTick := map[string]int{} // tasks
	for _, task := range tasks {
		perTick[task.Origin.Rule+" "+strconv.FormatInt(task.Origin.Tick.Nominal.Unix(), 10)]++
	}
	for tick, n := range perTick {
		require.Equal(a.t, 1, n, "tasks of the tick %s", tick)
	}
	covered, kinds, told := map[string]map[int64]int{}, map[string]int{}, map[string]bool{}
	cur, err := a.db.Collection("periodic_runs").Find(a.t.Context(), bson.D{})
	require.NoError(a.t, err)
	for cur.Next(a.t.Context()) {
		var r seenRun
		require.NoError(a.t, cur.Decode(&r))
		kinds[r.Status]++
		if covered[r.Rule] == nil {
			covered[r.Rule] = map[int64]int{}
		}
		last := r.Nominal
		if r.Count > 1 {
			last = r.Last
		}
		for at := r.Nominal.Unix(); at <= last.Unix(); at++ {
			covered[r.Rule][at]++
		}
		if r.Count > 0 {
			require.Equal(a.t, last.Unix()-r.Nominal.Unix()+1, r.Count, "ticks of the span %s", r.ID)
		}
		task, there := tasks[r.Task]
		switch r.Status {
		case "SUCCESS":
			require.Equal(a.t, "Success", task.Status, "the task of %s", r.ID)
		case "FAILED":
			require.Equal(a.t, "Failure", task.Status, "the task of %s", r.ID)
		case "CANCELED": // while it waited it has no task
			require.True(a.t, r.Task == "" || there && task.Status == "Cancelled", "the task of %s is %s", r.ID, task.Status)
		case "SKIPPED":
			require.Empty(a.t, r.Task, "task of %s", r.ID)
		default:
			require.Fail(a.t, "a record does not say how its run ended", "%+v; its task: %+v", r, task)
		}
		if there {
			require.Equal(a.t, r.ID, task.Origin.Tick.Run)
			told[r.Task] = true
		}
	}
	require.NoError(a.t, cur.Err())
	for id := range tasks {
		require.True(a.t, told[id], "no record tells of the task %s", id)
	}
	ticks := 0
	for id, rule := range rules {
		for at := rule.first; at.Before(end); at = at.Add(time.Second) {
			ticks++
			require.Equal(a.t, 1, covered[id][at.Unix()], "records of the tick %v of rule %s", at, id)
		}
		require.Len(a.t, covered[id], int(end.Sub(rule.first)/time.Second), "seconds with a record of rule %s", id)
	}
	require.Len(a.t, covered, len(rules), "rules with records")
	a.checkLimits(rules, tasks)
	require.NotZero(a.t, kinds["SUCCESS"])
	a.t.Logf("%d ticks, records %v, %d tasks", ticks, kinds, len(tasks))
}

// checkLimits proves that no more runs of a rule were under way at once than its policies
// allow. Each process knows the database's time to a fraction of a second.
func (a *arena) checkLimits(rules map[string]tickRule, tasks map[string]seenTask) {
	a.t.Helper()
	const known = 200 * time.Millisecond
	type change struct {
		at time.Time
		by int
	}
	changes := map[string][]change{}
	for _, task := range tasks {
		if end := task.FinishedAt.Add(-known); end.After(task.CreatedAt) {
			changes[task.Origin.Rule] = append(changes[task.Origin.Rule], change{task.CreatedAt, 1}, change{end, -1})
		}
	}
	for id, rule := range rules {
		limit := tickLimits[rule.kind]
		if limit == 0 {
			continue
		}
		of := changes[id]
		slices.SortFunc(of, func(x, y change) int {
			if c := x.at.Compare(y.at); c != 0 {
				return c
			}
			return x.by - y.by
		})
		under := 0
		for _, c := range of {
			under += c.by
			require.LessOrEqual(a.t, under, limit, "runs at once of rule %s, of kind %d, at %v", id, rule.kind, c.at)
		}
	}
}

// seenTasks are all lives of all tasks by id; one that is in the history, too, counts once,
// and no task may have two lives.
func (a *arena) seenTasks() map[string]seenTask {
	a.t.Helper()
	out := map[string]seenTask{}
	for _, collection := range []string{"tasks", "task_history"} {
		cur, err := a.db.Collection(collection).Find(a.t.Context(), bson.D{})
		require.NoError(a.t, err)
		for cur.Next(a.t.Context()) {
			var task seenTask
			require.NoError(a.t, cur.Decode(&task))
			if task.TaskID != "" {
				task.ID = task.TaskID
			}
			if other, there := out[task.ID]; there {
				require.Equal(a.t, other.Generation, task.Generation, "lives of the task %s", task.ID)
			}
			out[task.ID] = task
		}
		require.NoError(a.t, cur.Err())
	}
	return out
}
