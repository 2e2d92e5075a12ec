package calendar

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ticksOf are the next n ticks as "instant wall shift fires".
func ticksOf(t *testing.T, s Spec, after string, n int) (out []string) {
	c, err := Parse(s)
	require.NoError(t, err)
	for k := range c.Ticks(at(t, after)) {
		line := k.At.Format("2006-01-02T15:04:05Z") + " wall " + k.Wall.Format("01-02 15:04:05")
		if k.Shift != "" {
			line += " " + string(k.Shift)
		}
		if !k.Fires {
			line += " left out"
		}
		if out = append(out, line); len(out) == n {
			break
		}
	}
	return out
}

func TestKnownFactsOfZones(t *testing.T) {
	for name, c := range map[string]struct {
		spec  Spec
		after string
		want  []string
	}{
		"Lord Howe: half past two becomes three, and three exists": {
			Spec{Cron: "0 0 3 4 10 *", Timezone: "Australia/Lord_Howe"}, "2026-01-01T00:00:00Z",
			[]string{"2026-10-03T16:00:00Z wall 10-04 03:00:00"},
		},
		"Lord Howe: a quarter past two does not exist": {
			Spec{Cron: "0 15 2 * * *", Timezone: "Australia/Lord_Howe", Gap: GapSkip}, "2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z wall 10-04 02:15:00 gap left out", "2026-10-04T15:15:00Z wall 10-05 02:15:00"},
		},
		"Cairo: five in the morning of the 23rd is never on the 24th": {
			Spec{Cron: "0 0 5 23 4 *", Timezone: "Africa/Cairo"}, "2026-01-01T00:00:00Z",
			[]string{"2026-04-23T03:00:00Z wall 04-23 05:00:00", "2027-04-23T03:00:00Z wall 04-23 05:00:00"},
		},
		"Cairo: the day of the shift has no midnight": {
			Spec{Cron: "@daily", Timezone: "Africa/Cairo"}, "2026-04-23T00:00:00Z",
			[]string{"2026-04-23T22:00:00Z wall 04-24 00:00:00 gap", "2026-04-24T21:00:00Z wall 04-25 00:00:00"},
		},
		"New York, spring: half past two runs after the gap": {
			Spec{Cron: "30 2 * * *", Timezone: "America/New_York"}, "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T07:00:00Z wall 03-08 02:30:00 gap", "2026-03-09T06:30:00Z wall 03-09 02:30:00"},
		},
		"New York, spring: or is skipped": {
			Spec{Cron: "30 2 * * *", Timezone: "America/New_York", Gap: GapSkip}, "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T07:00:00Z wall 03-08 02:30:00 gap left out", "2026-03-09T06:30:00Z wall 03-09 02:30:00"},
		},
		"New York, spring: many times in the gap are one, and none where it fires at its end": {
			Spec{Cron: "*/20 2-3 * * *", Timezone: "America/New_York"}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T07:00:00Z wall 03-08 03:00:00", "2026-03-08T07:20:00Z wall 03-08 03:20:00"},
		},
		"New York, spring: every hour adds no run for the hour that is not": {
			Spec{Cron: "7 * * * *", Timezone: "America/New_York"}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T06:07:00Z wall 03-08 01:07:00", "2026-03-08T07:00:00Z wall 03-08 02:07:00 gap left out", "2026-03-08T07:07:00Z wall 03-08 03:07:00"},
		},
		"New York, spring: but where that is asked for": {
			Spec{Cron: "7 * * * *", Timezone: "America/New_York", Gap: GapRunAfter}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T06:07:00Z wall 03-08 01:07:00", "2026-03-08T07:00:00Z wall 03-08 02:07:00 gap", "2026-03-08T07:07:00Z wall 03-08 03:07:00"},
		},
		"New York, autumn: half past one comes once": {
			Spec{Cron: "30 1 * * *", Timezone: "America/New_York"}, "2026-11-01T00:00:00Z",
			[]string{"2026-11-01T05:30:00Z wall 11-01 01:30:00 first", "2026-11-01T06:30:00Z wall 11-01 01:30:00 second left out", "2026-11-02T06:30:00Z wall 11-02 01:30:00"},
		},
		"New York, autumn: or twice": {
			Spec{Cron: "30 1 * * *", Timezone: "America/New_York", Fold: FoldBoth}, "2026-11-01T00:00:00Z",
			[]string{"2026-11-01T05:30:00Z wall 11-01 01:30:00 first", "2026-11-01T06:30:00Z wall 11-01 01:30:00 second"},
		},
		"New York, autumn: every half hour goes on every half hour": {
			Spec{Cron: "*/30 * * * *", Timezone: "America/New_York"}, "2026-11-01T05:00:00Z",
			[]string{"2026-11-01T05:30:00Z wall 11-01 01:30:00 first", "2026-11-01T06:00:00Z wall 11-01 01:00:00 second", "2026-11-01T06:30:00Z wall 11-01 01:30:00 second"},
		},
		"New York, autumn: twice on the first of the month, then not for a month": {
			Spec{Cron: "30 1 1 * *", Timezone: "America/New_York", Fold: FoldBoth}, "2026-10-20T00:00:00Z",
			[]string{"2026-11-01T05:30:00Z wall 11-01 01:30:00 first", "2026-11-01T06:30:00Z wall 11-01 01:30:00 second", "2026-12-01T06:30:00Z wall 12-01 01:30:00"},
		},
		"Apia: the 30th of December 2011 does not exist": {
			Spec{Cron: "0 12 * * *", Timezone: "Pacific/Apia"}, "2011-12-29T12:00:00Z",
			[]string{"2011-12-29T22:00:00Z wall 12-29 12:00:00", "2011-12-30T10:00:00Z wall 12-30 12:00:00 gap", "2011-12-30T22:00:00Z wall 12-31 12:00:00"},
		},
		"the 29th of February, over a century without one": {
			Spec{Cron: "0 0 29 2 *"}, "2092-03-01T00:00:00Z",
			[]string{"2096-02-29T00:00:00Z wall 02-29 00:00:00", "2104-02-29T00:00:00Z wall 02-29 00:00:00"},
		},
		"the 29th of February on a Sunday, forty years away": {
			Spec{Cron: "0 0 29 2 */7", Timezone: "America/New_York"}, "2088-03-01T00:00:00Z",
			[]string{"2128-02-29T05:00:00Z wall 02-29 00:00:00", "2156-02-29T05:00:00Z wall 02-29 00:00:00"},
		},
		"every so often, from the start of the rule": {
			Spec{Cron: "@every 90s", Start: time.Date(2026, 1, 1, 0, 0, 10, 5, time.UTC)}, "2026-01-01T00:01:40Z",
			[]string{"2026-01-01T00:03:10Z wall 01-01 00:03:10", "2026-01-01T00:04:40Z wall 01-01 00:04:40"},
		},
		"every so often, first at the start": {
			Spec{Cron: "@every 1h", Start: time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)}, "2025-12-01T00:00:00Z",
			[]string{"2026-01-01T09:00:00Z wall 01-01 09:00:00", "2026-01-01T10:00:00Z wall 01-01 10:00:00"},
		},
		"day of month or day of week": {
			Spec{Cron: "0 0 13 * 5"}, "2026-02-07T00:00:00Z",
			[]string{"2026-02-13T00:00:00Z wall 02-13 00:00:00", "2026-02-20T00:00:00Z wall 02-20 00:00:00"},
		},
		"the seventh day is the first": {
			Spec{Cron: "0 0 * * 5-7"}, "2026-11-20T00:00:00Z",
			[]string{"2026-11-21T00:00:00Z wall 11-21 00:00:00", "2026-11-22T00:00:00Z wall 11-22 00:00:00", "2026-11-27T00:00:00Z wall 11-27 00:00:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, ticksOf(t, c.spec, c.after, len(c.want)))
		})
	}
}

// daysOf are the days of the week on which a rule of midnight fires in two weeks.
func daysOf(t *testing.T, field string) (out []string) {
	c, err := Parse(Spec{Cron: "0 0 * * " + field})
	require.NoError(t, err, field)
	for k := range c.Ticks(at(t, "2026-11-21T12:00:00Z")) { // a Saturday
		if !k.At.Before(at(t, "2026-12-06T00:00:00Z")) {
			break
		}
		out = append(out, k.At.Format("Mon"))
	}
	n := len(out) / 2
	require.Equal(t, out[:n], out[n:], field)
	return out[:n]
}

func TestSundayIsTheSeventhDayToo(t *testing.T) {
	for field, want := range map[string]string{
		"1-7/2": "Sun Mon Wed Fri", "0-7/7": "Sun", "1,3-7/2": "Sun Mon Wed Fri", "5-7/2": "Sun Fri",
		"7-7": "Sun", "7/2": "Sun", "07": "Sun", "5,7,7": "Sun Fri", "fri-sun": "Sun Fri Sat", "mon-sun/3": "Sun Mon Thu",
		"7": "Sun", "0,7": "Sun", "5-7": "Sun Fri Sat", "0-7": "Sun Mon Tue Wed Thu Fri Sat", "mon-7": "Sun Mon Tue Wed Thu Fri Sat",
		"sun-tue": "Sun Mon Tue", "sun-sun": "Sun", "3-7/4,5": "Sun Wed Fri", "SAT-Sun": "Sun Sat", "7,1-3/2": "Sun Mon Wed",
		"3/2": "Wed Fri", "*/3": "Sun Wed Sat", "*/7": "Sun", "2-7/3": "Tue Fri", "sun-7/2": "Sun Tue Thu Sat",
	} {
		require.Equal(t, want, strings.Join(daysOf(t, field), " "), field)
	}
}

// Cron goes by how the fields begin: one that begins with a star only narrows the other.
func TestDaysThatBeginWithAStarNarrow(t *testing.T) {
	for days, want := range map[string]string{
		"13 * 5":    "11-27 12-04 12-11 12-13 12-18", // either
		"*/2 * 5":   "11-27 12-11",                   // odd days that are Fridays
		"13 * */5":  "12-13",                         // a 13th that is a Sunday or a Friday
		"?/2 * 5":   "11-27 12-11",
		"*,13 * 5":  "11-27 12-04 12-11 12-18",
		"1-31 * 5":  "11-22 11-23 11-24 11-25 11-26", // every day, since both are given
		"5,*/2 * 5": "11-23 11-25 11-27 11-29 12-01",
	} {
		c, err := Parse(Spec{Cron: "0 0 " + days})
		require.NoError(t, err)
		var got []string
		for k := range c.Ticks(at(t, "2026-11-21T12:00:00Z")) {
			if len(got) == 5 || !k.At.Before(at(t, "2026-12-20T00:00:00Z")) {
				break
			}
			got = append(got, k.At.Format("01-02"))
		}
		require.Equal(t, want, strings.Join(got, " "), days)
	}
}

func TestRulesAreStoredInOneForm(t *testing.T) {
	for expr, want := range map[string]string{
		"*/5  * * * *": "0 */5 * * * *", "@hourly": "0 0 * * * *", "@DAILY": "0 0 0 * * *",
		"1 2 3 ? jan-MAR mon": "1 2 3 ? jan-mar mon", "@every 90m": "@every 1h30m0s", "5/15 * * * * 7": "5/15 * * * * 7",
	} {
		c, err := Parse(Spec{Cron: expr})
		require.NoError(t, err, expr)
		require.Equal(t, want, c.String())
		again, err := Parse(Spec{Cron: c.String()})
		require.NoError(t, err)
		require.Equal(t, want, again.String())
	}
}

func TestWrongRulesAreRefusedByField(t *testing.T) {
	for expr, says := range map[string]string{
		"": "is empty", "* * *": "has 3 fields", "0 0 0 30 2 *": "can never fire", "0 0 0 31 2,4,6,9,11 *": "can never fire",
		"@reboot": "not a known descriptor", "@every 1500ms": "whole seconds", "@every": "not a known descriptor",
		"@every soon": "no valid duration", "@every 100000h": "ten years", "@every 9999999h": "at most ten years", "@every 1h9999999999m": "at most ten years", "TZ=UTC * * * * *": "must not name a zone",
		"60 * * * * *": `"60 * * * * *": second is 60; want 0 to 59`, "5-1 * * * * *": `second: "5-1" ends before it begins`,
		"a * * * *": `minute: "a" is not a number`, "0 0 0 L * *": `day of month: "l" is not a number`,
		"0 0 0 * foo *": `month: "foo" is neither a number nor a name such as feb`,
		"0 0 0 * * jan": `day of week: "jan" is neither a number nor a name such as mon`,
		"*/0 * * * * *": `second: "*/0" has a step of 0`,
		"*/90 * * * *":  `minute: "*/90" has a step of 90, but the field has only 60 values`,
		"0 */40 * * *":  `hour: "*/40" has a step of 40, but the field has only 24 values`,
		"0 0 5/32 * *":  `day of month: "5/32" has a step of 32`, "0 0 1 1-6/13 *": `month: "1-6/13" has a step of 13`,
		"0 0 * * 1-7/8": `day of week: "1-7/8" has a step of 8`, "0 0 * * */99999999999999999999": "day of week: ",
		"0 0 * * 7-2": `day of week: "7-2" ends before it begins`, "0 0 * * fri-mon": `day of week: "fri-mon" ends before it begins`,
		"0 0 * * 8": "day of week is 8; want 0 to 7", "0 0 * * 7-8": "day of week is 8; want 0 to 7",
		"0 24 * * *": "hour is 24; want 0 to 23", "0 0 0 * *": "day of month is 0; want 1 to 31", "0 0 0 1 13 *": "month is 13; want 1 to 12",
		"99999999999999999999 * * * *": "minute is 99999999999999999999; want 0 to 59", "5-061 * * * *": "minute is 061; want 0 to 59",
		"1,,2 * * * *": `minute: "" is not a value`, ", * * * *": `minute: "" is not a value`, "*-5 * * * *": `minute: "*-5" is not a value`,
		"+5 * * * *": `minute: "+5" is not a value`, "1-2-3 * * * *": `minute: "1-2-3" is not a value`, "99 99 * * *": "minute is 99; want 0 to 59; hour is 99; want 0 to 23",
	} {
		_, err := Parse(Spec{Cron: expr})
		require.ErrorContains(t, err, says, expr)
		var f *FieldError
		require.ErrorAs(t, err, &f)
		require.Equal(t, "cron", f.Field)
	}
	_, err := Parse(Spec{Cron: "*", Timezone: "Mars/Olympus", Gap: "x", Fold: "y"})
	for _, field := range []string{"cron: ", "timezone: ", "dst.gap: ", "dst.fold: "} {
		require.ErrorContains(t, err, field)
	}
	_, err = Parse(Spec{Cron: "* * * * *", Timezone: "Local"})
	require.ErrorContains(t, err, "timezone")
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"* * * * *", "@every 1s", "5/7 1-9/3 * ? jan,feb mon-7", "0 0 0 31 2 *", "TZ=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		c, err := Parse(Spec{Cron: expr, Timezone: "Australia/Lord_Howe"})
		if err != nil {
			return
		}
		now := time.Date(2026, 4, 4, 14, 0, 0, 0, time.UTC)
		for range 5 {
			next := c.Next(now)
			require.True(t, next.After(now), "%q: %v does not follow %v", expr, next, now)
			now = next
		}
	})
}

func BenchmarkNext(b *testing.B) {
	c, err := Parse(Spec{Cron: "0 0 0 29 2 *", Timezone: "America/New_York"})
	require.NoError(b, err)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		c.Next(now)
	}
}
