package tickplan

import (
	"cmp"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// WhatIf asks what a rule would do in a period, if it were enabled all the time and an engine
// never stopped. The planner itself decides, with assumed ends of runs. Nothing is read or
// written.
type WhatIf struct {
	Rule     *schedule.Rule // it stays as it is; @every counts from its CreatedAt without a StartAt
	From, To time.Time      // nominal times in [From, To), in whole seconds
	// Run says how long a run takes, and how it ends. nil = every run succeeds at once.
	Run func(nominal time.Time) (takes time.Duration, ends schedule.RunStatus)
	// Most bounds the ticks; 0 = 10,080, one for each minute of a week.
	Most int
	// Stop is asked now and then. An error ends the simulation; nil = it is not asked.
	Stop func() error
}

// stopEvery is how many steps are made between two questions whether to stop.
const stopEvery = 256

// defaultMost is the default of Most: one tick for each minute of a week.
const defaultMost = 7 * 24 * 60

// Fate is the outcome of one tick in a [WhatIf].
type Fate struct {
	Nominal time.Time
	Status  schedule.RunStatus // how the run ended, SKIPPED, or CANCELED
	Reason  string             // of a skip
	Attempt int
	Started time.Time // zero for one that never did
}

// Forecast is the result of a [WhatIf].
type Forecast struct {
	Fates []Fate // in the order of their nominal times
	// Until is To, or earlier if there were more than Most ticks.
	Until time.Time
	// AtOnce is the greatest number of runs at the same time.
	AtOnce int
}

// simulation is a forecast in the making.
type simulation struct {
	*WhatIf
	Forecast
	rule *schedule.Rule
	at   map[string]int // of a run's id: the index of its fate
	ends []simulatedEnd // of what runs, the earliest first
}

type simulatedEnd struct {
	begins time.Time
	at     time.Time
	task   *model.Task
	status schedule.RunStatus
}

// Forecast computes the result. The error says that the rule's times cannot be parsed.
func (w WhatIf) Forecast() (Forecast, error) {
	if w.Run == nil {
		w.Run = func(time.Time) (time.Duration, schedule.RunStatus) { return 0, schedule.RunSuccess }
	}
	w.Most = cmp.Or(w.Most, defaultMost)
	cal, err := TimesOf(w.Rule)
	if err != nil {
		return Forecast{}, err
	}
	r := settled(w.Rule)
	// Names as short as can be, and a record of everything, whatever the rule's log keeps.
	r.ID, r.Log, r.Status = "r", "", StatusOnline
	r.DecidedTo = w.From.Truncate(time.Second).Add(-time.Second)
	d := decide(r, cal, r.DecidedTo)
	d.schedule()
	s := &simulation{WhatIf: &w, Forecast: Forecast{Until: w.To}, rule: d.Rule, at: map[string]int{}}
	for n := 0; s.step(cal); n++ {
		if n%stopEvery == 0 && w.Stop != nil {
			if err := w.Stop(); err != nil {
				return Forecast{}, err
			}
		}
	}
	return s.Forecast, nil
}

// settled is the rule without what was decided about it so far, but for how often it ran.
func settled(stored *schedule.Rule) *schedule.Rule {
	r := *stored
	r.NextFireAt, r.Last, r.LastEffective, r.FailSkips = time.Time{}, nil, nil, false
	r.Active, r.Queued, r.QueuedAt, r.Range, r.Planned, r.PlannedAt = nil, nil, time.Time{}, nil, nil, time.Time{}
	return &r
}

// step decides what comes next, the end of a run before a tick of the same second.
func (s *simulation) step(cal *calendar.Schedule) bool {
	next := s.rule.NextFireAt
	if len(s.Fates) >= s.Most && next.Before(s.Until) && !next.IsZero() {
		s.Until = next
	}
	ticks := !next.IsZero() && next.Before(s.Until)
	switch {
	case len(s.ends) > 0 && (!ticks || !s.ends[0].at.After(next)):
		e := s.ends[0]
		s.ends = s.ends[1:]
		tick := *e.task.Origin.Tick
		s.fate(tick.Run, tick.Nominal).Status = e.status
		s.carry(Ended(s.begun(e.at), e.task, e.status, "", e.at), e.at, tick.Nominal)
	case ticks:
		after := Plan(s.begun(next), cal, next)
		if after == nil {
			return false
		}
		s.carry(after, next, next)
	default:
		return false
	}
	return true
}

// begun is the rule when it knows which runs a worker has begun by now.
func (s *simulation) begun(now time.Time) *schedule.Rule {
	runs := map[string]bool{}
	for _, e := range s.ends {
		if !e.begins.After(now) {
			runs[e.task.Origin.Tick.Run] = true
		}
	}
	return Begun(s.rule, runs)
}

// carry carries a decision out, as far as there is anything to carry out here.
func (s *simulation) carry(after *schedule.Rule, now, tick time.Time) {
	for _, p := range after.Planned {
		if r := p.Record; r != nil {
			switch r.Status {
			case schedule.RunSkipped:
				f := s.skipped(r, tick)
				f.Status, f.Reason, f.Attempt = r.Status, r.Reason, r.Attempt
			case schedule.RunScheduled, schedule.RunQueued, schedule.RunCanceled:
				f := s.fate(r.ID, r.Nominal)
				f.Status, f.Attempt = r.Status, r.Attempt
			}
		}
		if p.Task != nil {
			s.start(p.Task, now)
		}
		for i := range s.ends {
			if slices.Contains(p.Cancel, s.ends[i].task.ID) {
				s.ends[i].at, s.ends[i].status = now, schedule.RunCanceled
			}
		}
		if len(p.Cancel) > 0 {
			slices.SortStableFunc(s.ends, byTime)
		}
	}
	after.Planned, after.PlannedAt = nil, time.Time{}
	s.rule = after
	s.AtOnce = max(s.AtOnce, len(after.Active))
}

// skipped is the fate that the record of a skip tells: of one that waited, or of the tick
// just decided, whose record may be that of a span.
func (s *simulation) skipped(r *schedule.Run, tick time.Time) *Fate {
	if i, known := s.at[r.ID]; known && s.Fates[i].Status == schedule.RunQueued {
		return &s.Fates[i]
	}
	return s.fate(TickID(s.rule.ID, tick), tick)
}

func (s *simulation) start(t *model.Task, now time.Time) {
	tick := t.Origin.Tick
	takes, status := s.Run(tick.Nominal)
	begins := t.StartTime // later than now by the rule's jitter
	if begins.Before(now) {
		begins = now
	}
	s.fate(tick.Run, tick.Nominal).Started = begins
	e := simulatedEnd{begins: begins, at: begins.Add(takes), task: t, status: status}
	i, _ := slices.BinarySearchFunc(s.ends, e, func(a, b simulatedEnd) int {
		if c := byTime(a, b); c != 0 {
			return c
		}
		return -1 // behind those of the same time
	})
	s.ends = slices.Insert(s.ends, i, e)
}

func byTime(a, b simulatedEnd) int { return a.at.Compare(b.at) }

func (s *simulation) fate(id string, nominal time.Time) *Fate {
	i, there := s.at[id]
	if !there {
		i = len(s.Fates)
		s.at[id] = i
		s.Fates = append(s.Fates, Fate{Nominal: nominal})
	}
	return &s.Fates[i]
}

// Sum is a forecast in numbers.
type Sum struct {
	Ticks    int
	Runs     int                        // that started
	Waited   int                        // of them, those that had to wait for another's end
	LongWait time.Duration              // the longest such wait
	Ended    map[schedule.RunStatus]int // runs by how they ended; those cancelled while they waited, too
	Skipped  map[string]int             // ticks by why they did not run
}

// Sum adds up the forecast. A run counts as waiting if it starts later than the rule's jitter
// allows.
func (f *Forecast) Sum(jitter time.Duration) Sum {
	s := Sum{Ended: map[schedule.RunStatus]int{}, Skipped: map[string]int{}}
	for _, x := range f.Fates {
		s.Ticks++
		if x.Status == schedule.RunSkipped {
			s.Skipped[x.Reason]++
			continue
		}
		s.Ended[x.Status]++
		if x.Started.IsZero() {
			continue
		}
		s.Runs++
		if wait := x.Started.Sub(x.Nominal); wait > jitter {
			s.Waited++
			s.LongWait = max(s.LongWait, wait)
		}
	}
	return s
}

// Recorded turns recorded runs into the Run of a [WhatIf]. The run of a recorded tick ends as that
// one did. Every run takes the median time of the completed runs, or otherwise if there are none.
// n is the number of runs it is based on.
func Recorded(runs []*schedule.Run, otherwise time.Duration) (run func(time.Time) (time.Duration, schedule.RunStatus), takes time.Duration, n int) {
	ended := map[int64]schedule.RunStatus{}
	var took []time.Duration
	for _, r := range runs {
		switch {
		case r.StartedAt.IsZero() || r.EndedAt.IsZero() || r.Status == schedule.RunSkipped:
			continue
		case r.Status != schedule.RunCanceled: // its length says nothing, and the planner cancels by itself
			took = append(took, r.EndedAt.Sub(r.StartedAt))
			if !r.Manual {
				ended[r.Nominal.Unix()] = r.Status
			}
		}
	}
	takes = otherwise
	if n = len(took); n > 0 {
		slices.Sort(took)
		takes = took[n/2]
	}
	return func(nominal time.Time) (time.Duration, schedule.RunStatus) {
		return takes, cmp.Or(ended[nominal.Unix()], schedule.RunSuccess)
	}, takes, n
}
