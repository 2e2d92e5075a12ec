package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "../docs/metrics.md"

// rows are the lines of the table in the docs.
func rows[S any](metrics []metric[S]) (text string) {
	for _, m := range metrics {
		labels := strings.Join(m.labels, ", ")
		text += fmt.Sprintf("| `%s%s` | %s | %s | %s |\n", namespace, m.name, m.kind, labels, m.help)
	}
	return text
}

// The tables in the docs are what the code exports. MSCHEDULER_UPDATE=1 writes them.
func TestTheMetricsInTheDocsAreThoseOfTheCode(t *testing.T) {
	stored, err := os.ReadFile(page)
	require.NoError(t, err)
	want := string(stored)
	for name, text := range map[string]string{"process": rows(ofProcess), "commands": rows(ofCommands), "fleet": rows(ofFleet)} {
		head, rest, found := strings.Cut(want, "<!-- "+name+" -->\n")
		require.True(t, found, "%s has no place for the table of %s", page, name)
		_, tail, found := strings.Cut(rest, "<!-- end -->")
		require.True(t, found)
		want = head + "<!-- " + name + " -->\n| metric | type | labels | meaning |\n|---|---|---|---|\n" + text + "<!-- end -->" + tail
	}
	if os.Getenv("MSCHEDULER_UPDATE") != "" {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644)) //nolint:gosec // as all pages
	}
	require.Equal(t, want, string(stored), "run: MSCHEDULER_UPDATE=1 go test ./metrics -run Docs")
}
