package metrics

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var named = regexp.MustCompile(`\bmscheduler_[a-z_]+`)

// used are the metrics that the files of a directory name, and in which files.
func used(t *testing.T, dir string) map[string]string {
	t.Helper()
	in := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range named.FindAllString(string(text), -1) {
			in[name] = path
		}
		return err
	}))
	return in
}

// exported are the names of time series, by metric.
func exported[S any](out map[string][]string, metrics []metric[S]) {
	for _, m := range metrics {
		name := namespace + m.name
		out[name] = []string{name}
		if m.kind == histogram {
			out[name] = []string{name + "_bucket", name + "_sum", name + "_count", name}
		}
	}
}

// The board, the alerts and the autoscaler use metrics that exist, and the board shows all of them.
func TestFilesForOperatorsUseTheMetricsThatExist(t *testing.T) {
	all := map[string][]string{}
	exported(all, ofProcess)
	exported(all, ofCommands)
	exported(all, ofFleet)
	exists := map[string]bool{}
	for _, names := range all {
		for _, name := range names {
			exists[name] = true
		}
	}
	files := used(t, "../deploy")
	require.Greater(t, len(files), 30)
	for name, file := range files {
		if !exists[name] {
			t.Errorf("%s uses %s, which nobody exports", file, name)
		}
	}
	board := used(t, "../deploy/grafana")
	for metric, names := range all {
		shown := false
		for _, name := range names {
			shown = shown || board[name] != ""
		}
		if !shown {
			t.Errorf("the board does not show %s", metric)
		}
	}
}

// Each alert has a test, which promtool runs (.ci/metrics).
func TestEachAlertHasATest(t *testing.T) {
	rules, err := os.ReadFile("../deploy/prometheus/mscheduler.rules.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile("../deploy/prometheus/mscheduler.test.yaml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, alerts)
	for _, a := range alerts {
		if !strings.Contains(string(tests), a[1]) {
			t.Errorf("the alert %s has no test", a[1])
		}
	}
}
