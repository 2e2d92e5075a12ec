package lifecycle

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this one schedule of the simulation, with its trace")
	simSeeds = flag.Int("sim.seeds", 2000, "how many schedules the simulation runs")
)

// TestSimulation runs thousands of schedules, and each must keep every promise. A
// failing one is replayed by `go test ./internal/lifecycle -run Simulation -sim.seed=N -v`.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		if _, err := simulate(*simSeed, func(at time.Duration, s string) { t.Logf("%10v %s", at, s) }); err != nil {
			t.Fatal(err)
		}
		return
	}
	n := *simSeeds
	if testing.Short() {
		n = min(n, 300)
	}
	seeds := make(chan uint64)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var total simStats
	failed := 0
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range seeds {
				stats, err := simulate(seed, nil)
				mu.Lock()
				if err != nil {
					if failed++; failed <= 5 {
						t.Errorf("%v\nreplay: go test ./internal/lifecycle -run Simulation -v -sim.seed=%d", err, seed)
					}
				}
				add(&total, stats)
				mu.Unlock()
			}
		})
	}
	for seed := range uint64(n) {
		seeds <- seed + 1
	}
	close(seeds)
	wg.Wait()
	t.Logf("%d schedules: %+v", n, total)
	if n < 2000 {
		return // too few to contain everything
	}
	v := reflect.ValueOf(total)
	for i := range v.NumField() {
		if v.Field(i).Int() == 0 {
			t.Errorf("the simulation never has %s in %d schedules", v.Type().Field(i).Name, n)
		}
	}
}

func add(total *simStats, s simStats) {
	v, w := reflect.ValueOf(total).Elem(), reflect.ValueOf(s)
	for i := range v.NumField() {
		v.Field(i).SetInt(v.Field(i).Int() + w.Field(i).Int())
	}
}

func simulate(seed uint64, trace func(time.Duration, string)) (simStats, error) {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), now: epoch, tasks: map[string]*model.Task{}, lives: map[string]*simLife{}}
	s.trace = func(string, ...any) {}
	if trace != nil {
		s.trace = func(format string, args ...any) { trace(s.now.Sub(epoch), fmt.Sprintf(format, args...)) }
	}
	s.lease = s.millis(5_000, 20_000)
	for i := range 2 + s.rng.IntN(3) {
		w := &simWorker{sim: s, id: fmt.Sprintf("w%d", i+1), slots: 1 + s.rng.IntN(3), undecoded: s.chance(15)}
		w.skew = s.millis(-int(s.lease/time.Millisecond)/50, int(s.lease/time.Millisecond)/50) // together within the margin
		s.workers = append(s.workers, w)
	}
	for i := range 1 + s.rng.IntN(5) {
		t := NewTask(s.draft(fmt.Sprintf("k%d", i+1)), s.now)
		s.ids = append(s.ids, t.ID)
		s.tasks[t.ID] = t
	}
	for _, w := range s.workers {
		w.start()
		s.troubles(w)
	}
	s.people()
	s.runUntil(epoch.Add(s.millis(30_000, 180_000)))
	s.end()
	return s.stats, s.fault
}

func (s *sim) draft(key string) Draft {
	d := Draft{Type: "t", Key: key, Options: s.options(), Start: s.now.Add(s.millis(-10_000, 10_000)), Held: s.chance(5)}
	if s.chance(30) {
		d.Args = bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}
	}
	return d
}

func (s *sim) options() model.Options {
	o := model.Options{WorkerTimeout: s.lease, MaxLapses: new(s.rng.IntN(4)), Retry: &model.Retry{
		Strategy: model.RetryFixed, Interval: s.millis(1, 15_000), MaxErrors: new(s.rng.IntN(4)),
	}}
	if s.chance(40) {
		o.ConcurrentWorkerCount = 2
	}
	if s.chance(20) {
		o.ExecutionTimeout = s.millis(1000, 30_000)
	}
	if s.chance(20) {
		o.NeedManual = new(true)
	}
	if s.chance(20) {
		o.SpecificWorkerIDs = []string{"w1", "w2"}
	}
	return o
}

// troubles befall a worker at random.
func (s *sim) troubles(w *simWorker) {
	s.after(s.millis(1000, 60_000), func() {
		if s.calm {
			return
		}
		defer s.troubles(w)
		if w.frozen() || w.cut() || w.down() {
			return // one at a time
		}
		w.faultyAt = s.now
		d := s.millis(10, 3*int(s.lease.Milliseconds()))
		switch s.rng.IntN(3) {
		case 0:
			s.stats.Crashes++
			s.trace("%s crashes for %v", w.id, d)
			w.life++
			w.held = map[string]*hold{}
			w.downTo = s.now.Add(d)
			life := w.life
			s.after(d, func() {
				if w.life == life {
					w.start()
				}
			})
		case 1:
			s.stats.Pauses++
			s.trace("%s freezes for %v", w.id, d)
			w.frozenTo = s.now.Add(d)
			s.after(d, func() { w.faultyAt = s.now })
		default:
			s.stats.Partitions++
			s.trace("%s is cut off for %v", w.id, d)
			w.cutTo = s.now.Add(d)
			s.after(d, func() { w.faultyAt = s.now })
		}
	})
}

// people interfere at random.
func (s *sim) people() {
	s.after(s.millis(500, 30_000), func() {
		if s.calm {
			return
		}
		t := s.tasks[s.ids[s.rng.IntN(len(s.ids))]]
		var c *model.Task
		var err error
		eff := ResolveOptions(t.Options)
		switch s.rng.IntN(8) {
		case 0:
			c, err = Cancel(t, "people", eff, s.now)
		case 1, 2:
			c, err = RetryNow(t, "people", eff, s.now)
		case 3:
			c, err = Resolve(t, "people", eff, s.now)
		case 4:
			c, err = Release(t, eff, s.now)
		case 5:
			c, err = Update(t, Patch{Options: new(s.options())}, model.Options{}, s.now)
		default:
			c, err = SendAgain(t, s.draft(t.Key), model.Existing(s.rng.IntN(32)), s.now)
		}
		if err == nil && c != t {
			eff = ResolveOptions(c.Options)
			s.trace("people make %s of %s, which was %s", c.Status, t.ID, t.Status)
			s.write(t, c, eff, "", s.now)
		}
		s.people()
	})
}

// end lets no new faults happen and goes on: every task must come to its end, and none
// that is due may wait while a worker that may run it is free.
func (s *sim) end() {
	s.calm = true
	s.trace("calm")
	for _, id := range s.ids {
		t := s.tasks[id]
		if t.Status == model.StatusWait {
			eff := ResolveOptions(t.Options)
			if c, err := Release(t, eff, s.now); err == nil {
				s.write(t, c, eff, "", s.now)
			}
		}
	}
	waits := map[string]time.Duration{}
	for range 600 {
		s.runUntil(s.now.Add(time.Second))
		left := 0
		for _, id := range s.ids {
			t := s.tasks[id]
			if t.Status.Ended() {
				continue
			}
			left++
			if waits[id] += time.Second; !s.startable(t) {
				waits[id] = 0
			}
			if waits[id] > 5*time.Second {
				s.fail("%s is due, a worker that may run it is free, and nobody does: %s, due %v", id, t.Status, t.DueAt.Sub(epoch))
			}
		}
		if left == 0 || s.fault != nil {
			break
		}
	}
	for _, id := range s.ids {
		if t := s.tasks[id]; !t.Status.Ended() {
			s.fail("%s is lost: %s, due at %v, lapses at %v", id, t.Status, t.DueAt.Sub(epoch), t.LapseAt.Sub(epoch))
		}
		t := s.tasks[id]
		told := s.lifeOf(t).told
		for exec := range told {
			if _, st := ExecutionOf(t, exec); st == nil || st.SuccessTime.IsZero() {
				s.fail("%s: the success of %s was accepted and is not there", id, exec)
			}
		}
	}
}

// startable says whether some worker with a free slot may claim the task, by what its
// executions say and not by the derived fields.
func (s *sim) startable(t *model.Task) bool {
	for _, w := range s.workers {
		ill := w.down() || w.frozen() || w.cut()
		if !ill && w.free() > 0 && Claimable(t, w.id, ResolveOptions(t.Options), s.now.Add(-time.Second)) == "" {
			return true
		}
	}
	return false
}
