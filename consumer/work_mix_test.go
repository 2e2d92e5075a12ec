package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Tasks for one worker or several fail, snooze, park, retry and time out. Workers stop, vanish and come back, and people
// pause, cancel, update and retry. A task that a worker with a free slot could run must not wait for it.
//
// At a deadline another worker may write the lapse a millisecond before the owner cancels its handler, and start the next
// task. The mix sees that a limit is exceeded for that moment, in about one of a hundred runs. So it is no part of make check.
func TestWhateverHandlersWorkersAndPeopleDoNoTaskWaits(t *testing.T) {
	if os.Getenv("MSCHEDULER_TEST_LONG") == "" && os.Getenv("MSCHEDULER_MIX_SEED") == "" && os.Getenv("MSCHEDULER_MIX_SEEDS") == "" {
		t.Skip("make long runs it, and so does MSCHEDULER_MIX_SEEDS=40")
	}
	for seed := range testdb.Mixes(t, 6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) { workMix(t, seed, uri, db) })
		})
	}
}

func workMix(t *testing.T, seed int, uri string, db *mongo.Database) {
	r := rand.New(rand.NewPCG(uint64(seed), 2)) //nolint:gosec // a test
	setup, _ := preparedAt(t, uri, db)
	s := &site{t: t, r: r, uri: uri, db: db, setup: setup, slots: 1 + r.IntN(5), types: map[string]*siteType{}, plans: map[string][]act{}, paused: map[string]time.Time{}, began: time.Now(), calm: r.IntN(2) == 0}
	workers := 1 + r.IntN(3)
	var err error
	s.p, err = producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.p.Close(context.Background())) })
	for i := range 1 + r.IntN(4) {
		typ := &siteType{}
		typ.Code = fmt.Sprint("type-", i)
		switch r.IntN(4) {
		case 0:
			typ.MaxRunning = 1 + r.IntN(4)
			typ.most = typ.MaxRunning
		case 1:
			typ.KeyLimit = &model.KeyLimit{MaxRunning: 1 + r.IntN(2)}
		}
		if r.IntN(3) == 0 {
			typ.local = 1 + r.IntN(s.slots)
		}
		if r.IntN(3) == 0 {
			typ.ClaimBy = model.ClaimByTenant
		}
		require.NoError(t, setup.store.Types.Put(t.Context(), &typ.TaskType))
		s.types[typ.Code] = typ
	}
	for n := range workers {
		s.launch(n)
	}
	w := &watcher{s: s, since: map[string]time.Time{}, told: map[string]bool{}, rates: map[*mate]int{}, sent: map[*mate]int{}}
	codes := []string{}
	for i := range s.types {
		codes = append(codes, i)
	}
	slices.Sort(codes)
	var ids, held []string
	retried, capped := map[string]bool{}, map[string]bool{}
	send := func() {
		code := codes[r.IntN(len(codes))]
		key := fmt.Sprint(len(ids))
		opts := []producer.Option{producer.Key(key), producer.Priority(r.IntN(3) * r.IntN(4))}
		tenant := ""
		if r.IntN(3) == 0 {
			tenant = []string{"a", "b"}[r.IntN(2)]
			opts = append(opts, producer.Tenant(tenant))
		}
		n := 1
		able := workers
		if tenant == "b" {
			able = min(able, 2)
		}
		if r.IntN(4) == 0 && able > 1 {
			n = 2 + r.IntN(able-1)
		}
		named := 0
		if r.IntN(4) == 0 {
			all := []string{"w0", "w1", "w2"}[:able]
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			named = min(able, n+r.IntN(2))
			opts = append(opts, producer.Workers(all[:named]...))
		}
		if n > 1 {
			opts = append(opts, producer.ConcurrentWorkers(n))
		}
		if r.IntN(4) == 0 {
			opts = append(opts, producer.In(time.Duration(r.Int64N(int64(4*time.Second)))))
		}
		retry := model.Retry{MaxErrors: new(1 + r.IntN(5))}
		switch r.IntN(4) {
		case 0:
			retry.Strategy, retry.Interval = model.RetryFixed, time.Duration(100+r.IntN(1500))*time.Millisecond
		case 1:
			retry.Strategy, retry.Sequence = model.RetrySequence, []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}
		case 2:
			retry.Strategy, retry.Interval = model.RetryExponential, 200*time.Millisecond
		case 3:
			retry = model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond, MaxErrors: new(3)}
		}
		if r.IntN(4) == 0 {
			retry.Local = &model.LocalRetry{Count: 1 + r.IntN(2), Interval: time.Duration(50+r.IntN(500)) * time.Millisecond}
		}
		opts = append(opts, producer.Retry(retry), producer.MaxLapses(5))
		if r.IntN(2) == 0 {
			opts = append(opts, producer.Lease(500*time.Millisecond, 2*time.Second))
		} else {
			opts = append(opts, producer.Lease(2*time.Second, 6*time.Second))
		}
		if r.IntN(3) == 0 {
			opts = append(opts, producer.Timeout(time.Duration(300+r.IntN(2500))*time.Millisecond))
		}
		limited := named > 0 && r.IntN(3) == 0
		if limited {
			opts = append(opts, producer.MaxErrorsPerWorker(1+r.IntN(2)))
		}
		if s.types[code].KeyLimit != nil || r.IntN(10) == 0 {
			opts = append(opts, producer.LimitKey(fmt.Sprint("k", r.IntN(2))))
		}
		if r.IntN(10) == 0 {
			opts = append(opts, producer.NeedManual(true))
		}
		if r.IntN(12) == 0 {
			opts = append(opts, producer.ExpiresIn(time.Duration(1+r.IntN(6))*time.Second+4*time.Second))
		}
		id := model.TaskID(tenant, code, key)
		capped[id] = limited
		if r.IntN(10) == 0 {
			opts = append(opts, producer.Held())
			held = append(held, id)
		}
		var plan []act
		for range r.IntN(4) {
			plan = append(plan, act(r.IntN(int(acts))))
		}
		s.mu.Lock()
		s.plans[id] = plan
		s.mu.Unlock()
		ids = append(ids, id)
		_, err := producer.Send(t.Context(), s.p, model.NewType[int, int](code), 1, opts...)
		require.NoError(t, err)
	}
	release := func(i int) {
		_, err := s.p.Release(t.Context(), held[i])
		s.note("people release %s: %v", held[i], err)
		held = slices.Delete(held, i, i+1)
	}
	resume := func(typ string) {
		require.NoError(t, setup.store.Control.Resume(t.Context(), false, []string{typ}))
		s.note("people resume %s", typ)
		s.mu.Lock()
		s.types[typ].at = time.Now()
		delete(s.paused, typ)
		s.mu.Unlock()
	}
	back := func(m *mate) {
		m.px.Mend()
		s.note("w%d is back", m.n)
		s.mu.Lock()
		m.cut, m.well = false, time.Now().Add(5*time.Second)
		s.mu.Unlock()
	}
	interfere := func() {
		m := s.mates[r.IntN(len(s.mates))]
		id := ids[r.IntN(len(ids))]
		typ := codes[r.IntN(len(codes))]
		switch r.IntN(14) {
		case 0:
			if s.paused[typ].IsZero() {
				require.NoError(t, setup.store.Control.Pause(t.Context(), false, []string{typ}, "", ""))
				s.note("people pause %s", typ)
				s.mu.Lock()
				s.paused[typ] = time.Now()
				s.mu.Unlock()
			}
		case 1:
			for typ := range s.paused {
				resume(typ)
			}
		case 2:
			st := s.types[typ]
			if st.MaxRunning > 0 {
				s.mu.Lock()
				st.MaxRunning = 1 + r.IntN(4)
				st.most = max(st.most, st.MaxRunning)
				st.at = time.Now()
				s.mu.Unlock()
				next := st.TaskType
				require.NoError(t, setup.store.Types.Put(t.Context(), &next))
				s.note("people limit %s to %d", typ, st.MaxRunning)
				s.mu.Lock()
				st.Version = next.Version
				s.mu.Unlock()
			}
		case 3, 4:
			_, err := s.p.Cancel(t.Context(), id, "unwanted")
			s.note("people cancel %s: %v", id, err)
		case 5:
			if len(held) > 0 {
				release(r.IntN(len(held)))
			}
		case 6:
			_, err := s.p.Update(t.Context(), id, producer.Priority(r.IntN(10)))
			s.note("people update %s: %v", id, err)
		case 7:
			if capped[id] {
				return // it might wait for yet another worker
			}
			_, err := s.p.Update(t.Context(), id, producer.AnyWorker())
			s.note("people let any worker have %s: %v", id, err)
		case 8:
			_, err := s.p.Retry(t.Context(), id, "again")
			s.note("people retry %s: %v", id, err)
			retried[id] = true
		case 9:
			_, err := s.p.Update(t.Context(), id, producer.ConcurrentWorkers(1))
			s.note("people want one worker for %s: %v", id, err)
		case 10:
			if !m.cut && !m.leaving {
				s.note("w%d loses its connections", m.n)
				s.mu.Lock()
				m.well = time.Now().Add(3 * time.Second)
				s.mu.Unlock()
				m.px.Drop()
			}
		case 11:
			if s.calm || m.cut || m.leaving {
				return
			}
			s.note("w%d is cut off", m.n)
			s.mu.Lock()
			m.cut = true
			s.mu.Unlock()
			m.px.Cut()
			away := time.Duration(500+r.IntN(9000)) * time.Millisecond
			time.AfterFunc(away, func() {
				if !m.leaving {
					back(m)
				}
			})
		case 12:
			if s.calm || m.cut || m.leaving {
				return
			}
			s.note("w%d is killed", m.n)
			s.mu.Lock()
			m.cut, m.leaving = true, true
			s.mu.Unlock()
			m.px.Cut()
			m.cancel()
			s.launch(m.n)
		case 13:
			if m.cut || m.leaving {
				return
			}
			s.note("w%d stops", m.n)
			s.mu.Lock()
			m.leaving = true
			s.mu.Unlock()
			m.cancel()
			if r.IntN(2) == 0 {
				<-m.ended
			}
			s.launch(m.n)
		}
	}
	complete := func() {
		s.mu.Lock()
		var now []parking
		s.parked = slices.DeleteFunc(s.parked, func(p parking) bool {
			due := !p.at.After(time.Now())
			if due {
				now = append(now, p)
			}
			return due
		})
		s.mu.Unlock()
		for _, p := range now {
			var err error
			switch p.how {
			case 0, 1:
				_, err = s.p.Complete(t.Context(), p.handle, 1000)
			case 2:
				_, err = s.p.Fail(t.Context(), p.handle, "outside", producer.Failure{})
			}
			s.note("outside ends an execution: %v", err)
		}
	}
	const tick = 100 * time.Millisecond
	step := func(i int) []*model.Task {
		complete()
		<-time.After(tick)
		tasks := s.tasks()
		w.look(tasks)
		if i%10 == 0 {
			w.spins()
		}
		return tasks
	}
	for i := range 250 {
		if i < 200 && i%20 == 0 {
			for range 1 + r.IntN(4*workers) {
				send()
			}
		} else if i < 200 && r.IntN(10) == 0 {
			send()
		}
		if i > 5 && r.IntN(6) == 0 {
			interfere()
		}
		step(i)
	}
	for typ := range s.paused {
		resume(typ)
	}
	for len(held) > 0 {
		release(0)
	}
	s.note("people are gone")
	ended := func(task *model.Task) bool { return task.Status.Ended() }
	var tasks []*model.Task
	over := false
	for i := 0; i < 3000 && !over; i++ {
		tasks = step(i)
		over = !slices.ContainsFunc(tasks, func(task *model.Task) bool { return !ended(task) })
	}
	for _, task := range tasks {
		if !ended(task) {
			s.fault("%s does not end: %s, due %v, lapse %v, audience %v, options %+v", task.ID, task.Status, task.DueAt.Sub(s.began), task.LapseAt.Sub(s.began), task.Audience, task.Options)
		}
	}
	took := time.Since(s.began)
	// Nothing is left to do.
	<-time.After(90 * time.Second) // nobody has lacked a permit for a minute
	before := map[*mate]map[string]int{}
	for _, m := range s.mates {
		before[m] = m.sent.count()
	}
	<-time.After(time.Minute)
	for _, m := range s.mates {
		n := 0
		after := m.sent.count()
		for what, k := range after {
			n += k - before[m][what]
			after[what] = k - before[m][what]
			if after[what] == 0 {
				delete(after, what)
			}
		}
		most := 0
		for _, x := range w.rates {
			most = max(most, x)
		}
		if over {
			t.Logf("idle w%d, watching %t: %d commands a minute; busiest %d: %v", m.n, m.watch.Watching(), n, most, after)
		}
		idle := 120
		if len(m.cfg.Tenants) > 0 {
			idle *= 2 // a poll is two queries: of the types that are claimed by tenant, and of the others
		}
		if over && n > idle {
			s.fault("w%d is idle and sends %d commands a minute", m.n, n)
		}
	}
	s.check(tasks, retried)
	t.Logf("seed %d: %d workers of %d slots, calm %t, %d types, %d tasks, %d calls, took %v", seed, workers, s.slots, s.calm, len(s.types), len(ids), len(s.calls), took)
	if len(s.faults) > 0 {
		cur, err := db.Collection("permits").Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var raws []bson.Raw
		require.NoError(t, cur.All(t.Context(), &raws))
		for _, raw := range raws {
			s.note("permit %v", raw)
		}
		var turns []bson.Raw
		cur, err = db.Collection("turns").Find(t.Context(), bson.D{})
		require.NoError(t, err)
		require.NoError(t, cur.All(t.Context(), &turns))
		s.note("turns %v", turns)
		for _, typ := range s.types {
			s.note("type %+v", typ)
		}
		for _, task := range tasks {
			if !ended(task) {
				s.note("%+v", task)
			}
		}
		for _, l := range s.log {
			t.Log(l)
		}
		t.Errorf("%d faults:\n%s", len(s.faults), strings.Join(s.faults, "\n"))
	}
}
