package scalemodel

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	scaleDoc     = "../../docs/scale.md"
	begin, after = "<!-- mscheduler bench scale -->\n", "<!-- end -->\n"
)

// docs/scale.md shows what the model says. MSCHEDULER_UPDATE=1 writes it again.
func TestTheDocsShowWhatTheModelSays(t *testing.T) {
	var all []Estimate
	for _, f := range Sizes() {
		e, err := Of(f)
		require.NoError(t, err)
		all = append(all, e)
	}
	var table strings.Builder
	for i, r := range Table(all) {
		table.WriteString("| " + r.Name + " | " + strings.Join(r.Cells, " | ") + " |\n")
		if i == 0 {
			table.WriteString("|---" + strings.Repeat("|---", len(r.Cells)) + "|\n")
		}
	}
	doc, err := os.ReadFile(scaleDoc)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(doc), begin)
	require.True(t, found)
	was, behind, found := strings.Cut(rest, after)
	require.True(t, found)
	if os.Getenv("MSCHEDULER_UPDATE") != "" {
		require.NoError(t, os.WriteFile(scaleDoc, []byte(before+begin+table.String()+after+behind), 0o644)) //nolint:gosec // a document
		return
	}
	require.Equal(t, was, table.String(), "run it with MSCHEDULER_UPDATE=1")
}

func TestAFleetThatIsTenTimesAsLargeNeedsAtMostTenTimesAsMuch(t *testing.T) {
	before := Idle(1)
	for workers := 10; workers <= 10_000; workers *= 10 {
		r := Idle(workers)
		require.LessOrEqual(t, r.Polls, 21.0, "the polls of all together")
		require.Less(t, r.All(), 10*max(before.All(), 1))
		before = r
	}
	require.InDelta(t, 0.195, Idle(1).All(), 0.01, "docs/performance.md: 11.7 commands a minute")
}

func TestDepthGrowsWithTheLogarithm(t *testing.T) {
	require.Equal(t, 1, Depth(1000, indexPage, 50))
	require.Equal(t, 2, Depth(1e6, indexPage, 50))
	require.Equal(t, 3, Depth(1e8, indexPage, 50))
	require.Equal(t, 4, Depth(1e10, indexPage, 50))
}
