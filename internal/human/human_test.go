package human

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationsAreShownInTheirTwoGreatestUnits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms":    0,
		"350ms":  350 * time.Millisecond,
		"1.5s":   1500 * time.Millisecond,
		"12s":    12*time.Second + 300*time.Millisecond,
		"5m":     5*time.Minute - time.Millisecond,
		"1h 5m":  time.Hour + 5*time.Minute + 20*time.Second,
		"7d":     7*24*time.Hour - time.Minute,
		"3d 4h":  76 * time.Hour,
		"1y 35d": 400 * 24 * time.Hour,
		"-12s":   -12 * time.Second,
	} {
		require.Equal(t, want, Rough(d), d)
	}
}

func TestTimesAreAbsoluteAndRelative(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	require.Equal(t, "2026-01-31 08:57:00Z (3m ago)", When(now.Add(-3*time.Minute), now))
	require.Equal(t, "2026-01-31 09:00:20Z (in 20s)", When(now.Add(20*time.Second), now))
	require.Equal(t, "2026-01-31 09:00:00Z (just now)", When(now, now))
	require.Equal(t, "-", When(time.Time{}, now))
}

func TestOneLineCutsAtRunes(t *testing.T) {
	require.Equal(t, "a b c", OneLine(" a\n b\tc ", 10))
	require.Equal(t, "ääää…", OneLine("äääääää", 5))
}

func TestPlural(t *testing.T) {
	require.Equal(t, "1 task", Plural(1, "task", "tasks"))
	require.Equal(t, "0 tasks", Plural(0, "task", "tasks"))
}

func TestAListIsPartOfASentence(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		require.Equal(t, want, List(words))
	}
}

func TestATaskIDIsShortWhereItHasNoTenantAndOneMeaning(t *testing.T) {
	for id, want := range map[string][2]string{
		"-/http/order-17":    {"http/order-17", "'http/order-17'"},
		"acme/http/order-17": {"acme/http/order-17", "'acme/http/order-17'"},
		"-/http/a/b":         {"-/http/a/b", "'-/http/a/b'"},
		"-/t/it's":           {"t/it's", `'t/it'\''s'`},
	} {
		require.Equal(t, want, [2]string{TaskID(id), TaskArg(id)})
	}
}

func TestAFlowIDIsShortWhereItHasNoTenantAndOneMeaning(t *testing.T) {
	for id, want := range map[string][2]string{
		"-/order-17":    {"order-17", "'order-17'"},
		"acme/order-17": {"acme/order-17", "'acme/order-17'"},
		"-/a/b":         {"-/a/b", "'-/a/b'"},
		"-/-x":          {"-x", "-- '-x'"},
	} {
		require.Equal(t, want, [2]string{FlowID(id), FlowArg(id)})
	}
}
