package stepplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/plan/repeat"
)

var now = time.Date(2026, 11, 23, 13, 0, 0, 0, time.UTC)

func planOf(typ repeat.Type, value, repet int) *repeat.Plan {
	return &repeat.Plan{PlanType: typ, PlanValue: value, PlanRepet: repet, Start: now}
}

var repeating = []repeat.Type{repeat.Second, repeat.Minute, repeat.Hour, repeat.Day, repeat.Week, repeat.Month}

// somePlan draws a plan of any repeating type, whose last step may be any.
func somePlan(t *rapid.T) *repeat.Plan {
	p := &repeat.Plan{
		PlanType: rapid.SampledFrom(repeating).Draw(t, "type"),
		NoKeep:   rapid.Bool().Draw(t, "no_keep"),
		Timezone: rapid.SampledFrom([]string{"", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}).Draw(t, "zone"),
		Start:    someTime(t, "start"),
	}
	bounds := values[p.PlanType]
	p.PlanValue = rapid.IntRange(bounds[0], bounds[1]).Draw(t, "value")
	p.PlanRepet = rapid.OneOf(rapid.Just(-1), rapid.IntRange(1, 20), rapid.IntRange(1, maxRepet)).Draw(t, "repet")
	return p
}

func someTime(t *rapid.T, label string) time.Time {
	from := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	to := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	return time.UnixMilli(rapid.Int64Range(from, to).Draw(t, label)).UTC()
}

// Whatever the plan and however late its steps end: times rise, steps and skipped times add up to
// plan_repet, no_keep skips none, and otherwise no step is early or about a time that has passed.
func TestStepsAndSkippedTimesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := somePlan(t)
		calendarTypes := p.PlanType == repeat.Week || p.PlanType == repeat.Month
		at, counted := someTime(t, "now"), int64(0)
		for range 30 {
			next, err := NextPlanTime(p, at)
			require.NoError(t, err)
			counted += next.Skipped
			if p.NoKeep || calendarTypes {
				require.Zero(t, next.Skipped)
			}
			require.Equal(t, next.Over || next.Skipped > 0, next.Why != "", "%+v", next)
			if next.Over {
				require.Zero(t, next.Step)
				require.Zero(t, next.At)
				if p.PlanRepet > 0 {
					require.EqualValues(t, p.PlanRepet, counted)
				} else {
					require.Zero(t, p.PlanValue, "it has no end")
				}
				return
			}
			counted++
			require.Equal(t, counted, next.Step)
			require.False(t, next.At.Before(p.PlanTime), "step %d at %v after %v", next.Step, next.At, p.PlanTime)
			switch {
			case calendarTypes:
				require.True(t, next.At.After(at), "%v at %v", next.At, at)
				require.True(t, next.At.After(p.PlanTime))
			case !p.NoKeep:
				require.False(t, next.At.Before(at), "%v at %v", next.At, at)
			}
			p.Step, p.PlanTime = next.Step, next.At
			if next.At.After(at) {
				at = next.At
			}
			if rapid.Bool().Draw(t, "late") {
				at = at.Add(time.Duration(rapid.Int64Range(0, (90*day).Milliseconds()).Draw(t, "by")) * time.Millisecond)
			}
		}
	})
}

// A billion times that have passed cost no more than one.
func TestSkippingDoesNotWalk(t *testing.T) {
	p := planOf(repeat.Second, 1, -1)
	p.Start = time.Unix(0, 0).UTC()
	var next Next
	require.Less(t, testing.AllocsPerRun(1, func() {
		var err error
		next, err = NextPlanTime(p, now)
		require.NoError(t, err)
	}), 30.0)
	require.Equal(t, now.Unix(), next.Step)
	require.Equal(t, now.Unix()-1, next.Skipped)
	require.Equal(t, now, next.At)
	require.Equal(t, "the times of steps 1 to 1795438799 were before 2026-11-23T13:00:00.000Z, and no_keep is false", next.Why)
}

func TestAPlanIsOverAfterTheYear9999(t *testing.T) {
	for _, typ := range []repeat.Type{repeat.Second, repeat.Minute, repeat.Hour, repeat.Day} {
		p := planOf(typ, 32767, -1)
		p.NoKeep = true
		for k := int64(1); k <= maxStep/2; k *= 2 {
			p.Step = k
			next, err := NextPlanTime(p, now)
			require.NoError(t, err)
			require.LessOrEqual(t, next.At.Year(), 9999)
			require.Equal(t, next.Over, next.At.IsZero())
			if next.Over {
				require.Contains(t, next.Why, "would be after the year 9999")
			}
			require.Equal(t, typ == repeat.Day && k >= 128 || typ == repeat.Hour && k >= 4096 || typ == repeat.Minute && k >= 131072 || typ == repeat.Second && k >= 1<<23, next.Over, "%s %d", typ, k)
		}
	}
	p := planOf(repeat.Day, 1, -1) // New York's last hours of the year are those of the next one in UTC
	p.Timezone, p.Step, p.Start = "America/New_York", 1, time.Date(9999, 12, 30, 4, 0, 0, 0, time.UTC)
	next, err := NextPlanTime(p, now)
	require.NoError(t, err)
	require.Equal(t, Next{Over: true, Why: "the time of step 2 would be after the year 9999"}, next)
	for _, typ := range []repeat.Type{repeat.Week, repeat.Month} {
		p := planOf(typ, 5, -1)
		p.Timezone = "America/New_York"
		p.PlanTime = time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)
		next, err := NextPlanTime(p, now)
		require.NoError(t, err)
		require.Equal(t, Next{Over: true, Why: "the time of step 1 would be after the year 9999"}, next)
	}
}

// The database has milliseconds: a time of this one has not passed.
func TestTimesAreMilliseconds(t *testing.T) {
	within := now.Add(time.Millisecond - 1)
	for _, p := range []*repeat.Plan{planOf(repeat.None, 0, 0), planOf(repeat.Time, 0, 0), planOf(repeat.Hour, 0, 1)} {
		next, err := NextPlanTime(p, within)
		require.NoError(t, err)
		require.Equal(t, Next{Step: 1, At: now}, next, p.PlanType)
	}
}

func TestABrokenDocumentIsAnErrorThatNamesEverything(t *testing.T) {
	p := planOf("yearly", 1, -1)
	p.Timezone, p.Step = "Mars", -1
	_, err := NextPlanTime(p, now)
	require.EqualError(t, err, `timezone "Mars" is not a zone of the time zone database, such as Europe/Berlin
plan_type is "yearly"; want one of none, time, second, minute, hour, day, week, month
step is -1; want 0 to 9007199254740992`)
	_, err = Preview(p, now, time.Time{}, 1)
	require.ErrorContains(t, err, "plan_type")
	require.EqualError(t, Check(&repeat.Plan{PlanType: repeat.Second}), `station is empty; want 1 to 100 of a-z A-Z 0-9 . _ -
messages are missing
plan_repet is 0; want 1 to 2147483647, or -1 for no end, for the type second
plan_time is missing; the type second needs one`)
}

// A preview is what repeated questions answer, if each step ends as it starts.
func TestAPreviewIsWhatComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, at := somePlan(t), someTime(t, "now")
		got, err := Preview(p, at, time.Time{}, 10)
		require.NoError(t, err)
		var want []Entry
		for range 10 {
			next, err := NextPlanTime(p, at)
			require.NoError(t, err)
			if next.Skipped > 0 {
				skipped := Entry{Step: p.Step + 1, Skipped: next.Skipped, Why: next.Why}
				if late := *p; true { // its time is that with no_keep
					late.NoKeep = true
					first, err := NextPlanTime(&late, at)
					require.NoError(t, err)
					skipped.At = first.At
				}
				want = append(want, skipped)
			}
			if next.Over {
				want = append(want, Entry{Over: true, Why: next.Why})
				break
			}
			want = append(want, Entry{Step: next.Step, At: next.At})
			p.Step, p.PlanTime = next.Step, next.At
			if next.At.After(at) {
				at = next.At
			}
		}
		require.Equal(t, want, got)
	})
}

func TestAPreviewBeginsWithTheStepThatWaits(t *testing.T) {
	p := planOf(repeat.Hour, 1, 3)
	p.Step, p.PlanTime = 2, now.Add(2*time.Hour)
	got, err := Preview(p, now, time.Time{}, 5)
	require.NoError(t, err)
	require.Equal(t, []Entry{
		{Step: 2, At: now.Add(2 * time.Hour)}, {Step: 3, At: now.Add(3 * time.Hour)},
		{Over: true, Why: "step 3 of 3 was the last"},
	}, got)
	require.EqualValues(t, 2, p.Step, "the plan stays as it is")

	p.Done = true
	got, err = Preview(p, now, time.Time{}, 1)
	require.NoError(t, err)
	require.Equal(t, []Entry{{Step: 3, At: now.Add(3 * time.Hour)}}, got, "step 2 is over")

	p.Status = repeat.StatusCancelled
	got, err = Preview(p, now, time.Time{}, 5)
	require.NoError(t, err)
	require.Equal(t, []Entry{{Over: true, Why: "it is CANCELLED"}}, got)
}

// A preview that begins later has the steps that the whole one has from there on.
func TestAPreviewBeginsWhereItIsAskedTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := somePlan(t)
		p.PlanRepet = rapid.SampledFrom([]int{-1, 30}).Draw(t, "steps")
		at := p.Start.Add(time.Duration(rapid.Int64Range(-10, 10).Draw(t, "now")) * time.Hour)
		all, err := Preview(p, at, time.Time{}, 40)
		require.NoError(t, err)
		runs := func(entries []Entry) (out []Entry) {
			for _, e := range entries {
				if e.Step > 0 && e.Skipped == 0 {
					out = append(out, e)
				}
			}
			return out
		}
		steps := runs(all)
		if len(steps) == 0 {
			return
		}
		i := rapid.IntRange(0, len(steps)-1).Draw(t, "first")
		from := steps[i].At
		if i > 0 && steps[i-1].At.Before(from) && rapid.Bool().Draw(t, "between") {
			from = steps[i-1].At.Add(time.Millisecond)
		}
		for i > 0 && steps[i-1].At.Equal(from) { // of an interval of nothing
			i--
		}
		if from.Sub(at) > FarthestPreview {
			return
		}
		later, err := Preview(p, at, from, len(steps)-i)
		require.NoError(t, err)
		got := runs(later)
		if len(got) > 0 && got[0].At.IsZero() {
			t.Fatal("a step without a time")
		}
		for k := range got { // steps of a week or a month are counted from the first that runs
			require.Equal(t, steps[i+k].At, got[k].At)
			require.Equal(t, steps[i+k].Step, got[k].Step)
		}
		require.Len(t, got, len(steps)-i)
	})
	_, err := Preview(planOf(repeat.Minute, 1, -1), now, now.Add(FarthestPreview+time.Hour), 1)
	require.ErrorContains(t, err, "at most 100 years after now")
	far, err := Preview(planOf(repeat.Minute, 1, -1), now, now.AddDate(50, 0, 0), 1)
	require.NoError(t, err)
	require.Equal(t, now.AddDate(50, 0, 0), far[0].At, "it is computed, not counted")
}
