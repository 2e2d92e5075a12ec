//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/producer"
)

// patience is for how long nothing may move after all faults have ended.
const patience = testdb.Patience

// world is a deployment.
type world struct {
	began    time.Time
	server   *engine.Deployment
	embedded bool
	pids     []int // of servers of others
	members  members
	db       *mongo.Database // directly, beside the troubles
	effects  *effects

	processes []*process
	watching  sync.WaitGroup

	mu       sync.Mutex
	asked    promises.Asked
	accepted map[string]int    // how many of each kind senders were told that they are stored
	awaited  map[string]string // results that senders got, by task
	faults   map[string]int
	events   map[string]int
	kills    []kill
	lines    []line
	wrong    []violation
}

// kinds are what senders send.
var kinds = []string{"task", "link", "flow", "plan"}

// kill is the end of a process that the nemesis killed.
type kill struct {
	name string
	at   time.Time
}

// line is one of the history.
type line struct {
	at   time.Time
	who  string
	what string
}

type violation struct{ task, what string }

func newWorld(server *engine.Deployment, embedded bool, db *mongo.Database, m members) *world {
	return &world{
		began: time.Now(), server: server, embedded: embedded, db: db, members: m, effects: newEffects(),
		asked: promises.NewAsked(), accepted: map[string]int{}, awaited: map[string]string{}, faults: map[string]int{}, events: map[string]int{},
	}
}

func (w *world) note(who, format string, values ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line{time.Now(), who, fmt.Sprintf(format, values...)})
}

// violated notes that a promise was broken.
func (w *world) violated(task, format string, values ...any) {
	what := fmt.Sprintf(format, values...)
	w.note("VIOLATED", "%s", what)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, violation{task, what})
}

func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[fault]++
}

// cannot forgets a fault that could not be caused.
func (w *world) cannot(fault string, why error) {
	w.note("", "%s: cannot be caused: %v", fault, why)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.faults, fault)
}

// killed notes that the nemesis has killed a process.
func (w *world) killed(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills = append(w.kills, kill{name, time.Now()})
}

// hear takes what a process reports.
func (w *world) hear(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Stored != "" {
		w.accepted[r.Stored]++
	}
	switch {
	case r.Event != "":
		w.events[r.Event]++
	case r.Stored == "task", r.Stored == "link":
		w.asked.Tasks[r.ID] = true
	case r.Stored == "flow":
		w.asked.Flows[r.ID] = true
	case r.Stored == "plan":
		w.asked.Plans[r.ID] = true
	default:
		w.awaited[r.ID] = r.Result
	}
}

// set stores what there is before the processes: the schema, the limit and the rule.
func (w *world) set(t *testing.T, lasts time.Duration) {
	t.Helper()
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	p, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(t.Context())) }()
	_, err = admin.New(p).PutType(t.Context(), model.TaskType{Code: promises.Limited, MaxRunning: promises.AtOnce})
	require.NoError(t, err)
	rules, err := periodic.New(periodic.Config{Database: w.db})
	require.NoError(t, err)
	r, err := rules.Create(t.Context(), promises.Rule(st.Clock.Now(), lasts))
	require.NoError(t, err)
	_, err = rules.Enable(t.Context(), r.ID, r.Version)
	require.NoError(t, err)
}

// start starts the processes.
func (w *world) start(t *testing.T) {
	t.Helper()
	for _, role := range []settings{
		{Name: "worker-a", Worker: true}, {Name: "worker-b", Worker: true}, {Name: "worker-c", Worker: true, NoStream: true},
		{Name: "engine-a", Engine: true}, {Name: "engine-b", Engine: true}, {Name: "both", Worker: true, Engine: true},
		{Name: "sender-a", Sender: true}, {Name: "sender-b", Sender: true},
	} {
		require.NoError(t, w.join(role))
	}
}

// heard waits until something of each kind has been accepted: on a slow machine that takes longer than the faults.
func (w *world) heard() {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { // between two looks
		w.mu.Lock()
		all := !slices.ContainsFunc(kinds, func(kind string) bool { return w.accepted[kind] == 0 })
		w.mu.Unlock()
		if all {
			return
		}
	}
}

// settle ends the senders, and waits until everything has ended, as long as something moves.
func (w *world) settle(ctx context.Context) *promises.Stored {
	w.heard()
	for _, p := range w.processes {
		if p.role.Sender {
			w.stop(p)
		}
	}
	w.note("", "all is well again")
	before, deadline := "", time.Now().Add(patience)
	for {
		s, err := promises.Read(ctx, w.db, w.asked)
		why := ""
		if err == nil {
			if why = s.Open(w.asked, time.Now()); why == "" {
				w.note("", "everything has ended")
				return s
			}
		}
		if now := fmt.Sprint(progress(s), err); now != before {
			before, deadline = now, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			id, _, _ := strings.Cut(strings.TrimPrefix(why, "the task "), " ")
			w.violated(id, "after %v in which nothing moved %s %v", patience, why, err)
			return s
		}
		time.Sleep(2 * time.Second) // between two looks
	}
}

// progress is what moves: how many tasks there are, and how many have ended, by executions, too.
func progress(s *promises.Stored) (n [3]int) {
	if s == nil {
		return n
	}
	n[0] = len(s.Tasks) + len(s.Runs)
	for _, t := range s.Tasks {
		if n[2] += len(t.WorkerStates); t.Status.Ended() {
			n[1]++
		}
	}
	return n
}

func (w *world) stop(p *process) {
	p.mu.Lock()
	ended := p.ending.Load()
	p.mu.Unlock()
	if ended {
		return
	}
	if err := p.stop(); err != nil {
		w.violated("", "%v", err)
	}
}

// check looks whether the promises were kept.
func (w *world) check(s *promises.Stored) {
	if s == nil {
		return
	}
	w.effects.check(s, w.violated)
	for id, result := range w.awaited {
		if t := s.Tasks[id]; t != nil && promises.Result(t) != result {
			w.violated(id, "a sender was told that the result of %s is %q, and it is %q", id, result, promises.Result(t))
		}
	}
}

// someCut is how many executions must have been cut off before another one of one of their tasks is expected: some may
// have spent what they may have of errors and lapses.
const someCut = 3

// checkSubstance looks whether the run can show anything: something was accepted, something went wrong, and others went
// on with what killed workers had. All processes have ended, so that all their reports are known.
func (w *world) checkSubstance() {
	w.mu.Lock()
	var nothing []string
	for _, kind := range kinds {
		if w.accepted[kind] == 0 {
			nothing = append(nothing, fmt.Sprintf("no %s was accepted", kind))
		}
	}
	if len(w.faults) == 0 {
		nothing = append(nothing, "no fault was caused")
	}
	kills := slices.Clone(w.kills)
	w.mu.Unlock()
	if n, again := w.effects.cutOff(kills); n >= someCut && again == 0 { // an event may be lost with who took over
		nothing = append(nothing, fmt.Sprintf("%d executions were cut off, and none of their tasks ran again", n))
	}
	for _, what := range nothing {
		w.violated("", "%s", what)
	}
}

// close ends everything, whatever state it is in.
func (w *world) close() {
	for _, p := range w.processes {
		w.stop(p)
	}
	w.watching.Wait()
	for _, p := range w.processes {
		p.net.close()
	}
	w.effects.Close()
}

// table is what happened, in numbers.
func (w *world) table(s *promises.Stored) string {
	var out strings.Builder
	row := func(name string, n any) { fmt.Fprintf(&out, "  %-46s %8v\n", name, n) }
	cut, again := w.effects.cutOff(w.kills)
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for _, name := range slices.Sorted(maps.Keys(w.faults)) {
		row(name, w.faults[name])
		total += w.faults[name]
	}
	row("faults", total)
	if s != nil {
		row("tasks", len(s.Tasks))
		row("flows, plans, ticks", fmt.Sprintf("%d, %d, %d", len(s.Flows), len(s.Plans), len(s.Runs)))
	}
	row("executions", w.effects.execs)
	row("cut off with their process, ran again", fmt.Sprintf("%d, %d", cut, again))
	row("takeovers", w.events[workerevent.TakenOver])
	row("lapsed leases of which the tasks were queued", w.events[workerevent.Lapsed])
	row("leases lost in time", w.events[workerevent.LeaseLost])
	row("late results refused by the database", w.events[workerevent.Fenced])
	row("late effects refused by the target", w.effects.refused)
	row("repeated effects absorbed by their keys", w.effects.repeated)
	row("violations", len(w.wrong))
	return out.String()
}

// maxTold is how many violations are told with their history.
const maxTold = 5

// beside is the time before and after what happened to a task in which faults are told with it.
const beside = 10 * time.Second

// history tells of violations what happened while their tasks lived.
func (w *world) history() string {
	var out strings.Builder
	for i, v := range w.wrong {
		fmt.Fprintf(&out, "\nVIOLATION: %s\n", v.what)
		own := w.effects.tell(v.task)
		if i >= maxTold || len(own) == 0 {
			continue
		}
		byTime := func(a, b line) int { return a.at.Compare(b.at) }
		slices.SortFunc(own, byTime)
		from, to := own[0].at.Add(-beside), own[len(own)-1].at.Add(beside)
		for _, l := range w.lines {
			if l.at.After(from) && l.at.Before(to) {
				own = append(own, l)
			}
		}
		slices.SortStableFunc(own, byTime)
		for _, l := range own {
			fmt.Fprintf(&out, "  %9.3fs  %-10s %s\n", l.at.Sub(w.began).Seconds(), l.who, l.what)
		}
		var doc bson.M
		err := w.db.Collection("tasks").FindOne(context.Background(), bson.D{{Key: "_id", Value: v.task}}).Decode(&doc)
		text, jsonErr := bson.MarshalExtJSONIndent(doc, false, false, "  ", "  ")
		fmt.Fprintf(&out, "  %s\n", text)
		if err = errors.Join(err, jsonErr); err != nil {
			fmt.Fprintf(&out, "  reading the task: %v\n", err)
		}
	}
	return out.String()
}
