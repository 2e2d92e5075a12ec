package consumer

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// mixed is a type of a mix: how it is limited, and how long its handler takes. The tasks of one with a limit of keys
// have one key.
type mixed struct {
	model.TaskType
	work time.Duration

	perLot, local int
}

// atMost is how many of its tasks a second may run in that many slots.
func (m *mixed) atMost(slots int) float64 {
	rate, running := m.RateLimit, m.MaxRunning
	if m.KeyLimit != nil {
		rate, running = m.KeyLimit.RateLimit, m.KeyLimit.MaxRunning
	}
	if running == 0 || running > slots {
		running = slots
	}
	most := float64(running) / m.work.Seconds()
	if rate != nil {
		most = min(most, float64(rate.Count)/rate.Per.Seconds())
	}
	return most
}

func mixOf(r *rand.Rand) (types []*mixed, workers, slots int) {
	workers, slots = 1+r.IntN(3), []int{1, 2, 3, 4, 8}[r.IntN(5)]
	for range 1 + r.IntN(6) {
		m := &mixed{work: time.Duration(20+r.IntN(400)) * time.Millisecond}
		rate := &model.RateLimit{Count: []int{2, 10, 50, 100}[r.IntN(4)], Per: time.Second}
		running := 1 + r.IntN(2*slots)
		switch r.IntN(6) {
		case 0: // without a limit
		case 1:
			m.RateLimit = rate
		case 2, 3:
			m.MaxRunning = running
		case 4:
			m.RateLimit, m.MaxRunning = rate, running
		case 5:
			if m.KeyLimit = (&model.KeyLimit{MaxRunning: running}); r.IntN(2) == 0 {
				m.KeyLimit = &model.KeyLimit{RateLimit: rate}
			}
		}
		types = append(types, m)
	}
	return types, workers, slots
}

// shared has workers run backlogs of the types. All slots have work as far as the limits allow it, and each type at least
// that part of its share.
func shared(t *testing.T, workers, slots int, part float64, types ...*mixed) {
	t.Helper()
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		const warm = 3 * time.Second
		setup, _ := preparedAt(t, uri, db)
		all := workers * slots
		span := 12 * time.Second * time.Duration(max(1, 12/all)) // few slots have few turns, and chance says which type is next
		many, gauges, handlers, keyed := map[string]int{}, make([]*gauge, len(types)), map[string]func(*Task[int]){}, map[string]bool{}
		for i, m := range types {
			m.Code = fmt.Sprint("type-", i)
			require.NoError(t, setup.store.Types.Put(t.Context(), &m.TaskType))
			many[m.Code] = int(m.atMost(all)*2*(warm+span).Seconds()) + 10
			g := newGauge(math.MaxInt)
			gauges[i], keyed[m.Code] = g, m.KeyLimit != nil
			handlers[m.Code] = func(*Task[int]) { g.during(func() { <-time.After(m.work) }) }
		}
		putMany(t, setup, many, func(task *model.Task) {
			if keyed[task.Type] {
				task.Options.LimitKey = "k"
			}
		})
		_, start := crewAt(t, uri, db, workers, Config{Concurrency: slots}, handlers)
		start()
		<-time.After(warm)
		done := make([]int, len(types))
		for i, g := range gauges {
			done[i] = -g.count()
		}
		<-time.After(span)
		busy, possible, says := 0.0, 0.0, fmt.Sprintf("%d workers of %d slots:", workers, slots)
		for i, m := range types {
			done[i] += gauges[i].count()
			busy += float64(done[i]) * m.work.Seconds() / span.Seconds()
			possible += m.atMost(all) * m.work.Seconds()
			says += fmt.Sprintf("\n  %d of at most %.0f/s, %v: rate %v, running %d, key %v", done[i], m.atMost(all), m.work, m.RateLimit, m.MaxRunning, m.KeyLimit)
		}
		possible = min(possible, float64(all))
		t.Logf("%s\n  %.2f of %.2f slots", says, busy, possible)
		require.Greater(t, busy, 0.6*possible, says)
		for i, m := range types {
			share := float64(all) / float64(len(types)) / m.work.Seconds()
			require.GreaterOrEqual(t, done[i], int(part*min(share, m.atMost(all))*span.Seconds()), "type %d: %s", i, says)
		}
	})
}

func TestLimitedTypesShareTheSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("make scenarios runs it without the race detector")
	}
	running := func(n int) *mixed {
		return &mixed{TaskType: model.TaskType{MaxRunning: n}, work: 200 * time.Millisecond}
	}
	rate := func(n int) *mixed {
		return &mixed{TaskType: model.TaskType{RateLimit: &model.RateLimit{Count: n, Per: time.Second}}, work: 200 * time.Millisecond}
	}
	free := func() *mixed { return &mixed{work: 200 * time.Millisecond} }
	for name, tc := range map[string]struct {
		slots int
		types []*mixed
	}{
		"two, in the only slot":                     {1, []*mixed{running(5), running(5)}},
		"more types than slots, whose permits pass": {2, []*mixed{running(50), running(50), running(50)}},
		"two rates and nothing else":                {4, []*mixed{rate(100), rate(100)}},
		"as many as slots beside one without limit": {4, []*mixed{running(50), running(50), running(50), running(50), free()}},
		"rates beside one without limit":            {4, []*mixed{rate(100), rate(100), rate(100), rate(100), free()}},
	} {
		t.Run(name, func(t *testing.T) { shared(t, 1, tc.slots, 0.5, tc.types...) })
	}
}

func TestNoTypeStarvesWhateverTheLimitsOfTheOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("make scenarios runs it without the race detector")
	}
	for seed := range testdb.Mixes(t, 12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			types, workers, slots := mixOf(rand.New(rand.NewPCG(uint64(seed), 0))) //nolint:gosec // a test
			shared(t, workers, slots, 0.05, types...)
		})
	}
}

// Tasks are sent over time. Some are delayed, have a priority or a key, or name their worker, and types are paused.
// A worker that stands still while slots and limits allow a task takes longer than the test permits.
func TestAMixIsDoneAsSoonAsItsLimitsAllow(t *testing.T) {
	for seed := range testdb.Mixes(t, 12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // a test
			types, workers, slots := mixOf(r)
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
				const lots, latest, paused = 5, 6 * time.Second, 2 * time.Second
				setup, _ := preparedAt(t, uri, db)
				all, total := workers*slots, 0
				ideal := time.Duration(lots)*time.Second + latest
				work := 0.0
				handlers, gauges := map[string]func(*Task[int]){}, []*gauge{}
				said := fmt.Sprintf("%d workers of %d slots:", workers, slots)
				for i, m := range types {
					m.Code = fmt.Sprint("type-", i)
					require.NoError(t, setup.store.Types.Put(t.Context(), &m.TaskType))
					perLot := 1 + r.IntN(1+int(m.atMost(all)*3))
					if m.local = 0; r.IntN(3) == 0 {
						m.local = 1 + r.IntN(slots)
					}
					m.perLot = perLot
					n := perLot * lots
					total += n
					work += float64(n) * m.work.Seconds()
					most := min(m.atMost(all), float64(cmp.Or(m.local, slots)*workers)/m.work.Seconds())
					ideal = max(ideal, time.Duration(float64(n)/most*float64(time.Second)))
					g := newGauge(n)
					gauges = append(gauges, g)
					handlers[m.Code] = func(*Task[int]) { g.during(func() { <-time.After(m.work) }) }
					said += fmt.Sprintf("\n  %d of at most %.0f/s, %v: rate %v, running %d, key %v, in a worker %d", n, most, m.work, m.RateLimit, m.MaxRunning, m.KeyLimit, m.local)
				}
				ideal = max(ideal, time.Duration(work/float64(all)*float64(time.Second)))
				crew, start := crewAt(t, uri, db, workers, Config{Concurrency: slots}, handlers)
				for _, c := range crew {
					for _, m := range types {
						c.handlerOf(m.Code).limit = m.local
					}
				}
				began := time.Now()
				start()
				for lot := range lots {
					for _, m := range types {
						putMany(t, setup, map[string]int{m.Code: m.perLot}, func(task *model.Task) {
							task.Key = fmt.Sprint(lot, "-", task.Key)
							task.ID = model.TaskID("", m.Code, task.Key)
							if m.KeyLimit != nil {
								task.Options.LimitKey = "k"
							}
							if r.IntN(3) == 0 {
								task.DueAt = task.DueAt.Add(time.Duration(r.Int64N(int64(latest))))
							}
							if r.IntN(4) == 0 {
								task.Priority = 1 + r.IntN(9)
							}
							if r.IntN(10) == 0 {
								task.Options.SpecificWorkerIDs = []string{fmt.Sprint("w", r.IntN(workers))}
							}
						})
					}
					typ := types[r.IntN(len(types))].Code
					require.NoError(t, setup.store.Control.Pause(t.Context(), false, []string{typ}, "", ""))
					<-time.After(time.Second)
					require.NoError(t, setup.store.Control.Resume(t.Context(), false, []string{typ}))
				}
				for _, g := range gauges {
					g.await(t)
				}
				took := time.Since(began)
				t.Logf("%s\n  %v, ideal %v: %.2f", said, took, ideal, took.Seconds()/ideal.Seconds())
				require.Less(t, took, ideal*8/5+6*time.Second, said)
			})
		})
	}
}
