package bench

import (
	"context"
	"encoding/json"
	"errors"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The program for River is formatted Go, and imports no module but those that its go.mod pins.
func TestTheProgramForRiverIsGo(t *testing.T) {
	text, err := fs.ReadFile(others, "others/river.go.txt")
	require.NoError(t, err)
	formatted, err := format.Source(text)
	require.NoError(t, err)
	require.Equal(t, string(formatted), string(text))
	file, err := parser.ParseFile(token.NewFileSet(), "river.go", text, parser.ImportsOnly)
	require.NoError(t, err)
	mod, err := fs.ReadFile(others, "others/river.mod.txt")
	require.NoError(t, err)
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if !strings.Contains(path, ".") {
			continue
		}
		pinned := false
		for line := range strings.Lines(string(mod)) {
			if module, _, ok := strings.Cut(strings.TrimSpace(line), " v"); ok && (path == module || strings.HasPrefix(path, module+"/")) {
				pinned = true
			}
		}
		require.True(t, pinned, path)
	}
}

func TestTheProgramForAgendaIsJavaScriptAndItsPackagesArePinned(t *testing.T) {
	text, err := fs.ReadFile(others, "others/package.json")
	require.NoError(t, err)
	var pack struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	require.NoError(t, json.Unmarshal(text, &pack))
	require.Len(t, pack.Dependencies, 3)
	for name, version := range pack.Dependencies {
		require.Regexp(t, `^[0-9]+\.[0-9]+\.[0-9]+$`, version, name)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	c := Comparison{dir: t.TempDir()}
	require.NoError(t, c.unpack("agenda", map[string]string{"agenda.mjs": "agenda.mjs"}))
	said, err := exec.CommandContext(t.Context(), node, "--check", filepath.Join(c.dir, "agenda", "agenda.mjs")).CombinedOutput() //nolint:gosec // a file of the test
	require.NoError(t, err, string(said))
}

func TestAComparisonNamesWhatIsWrong(t *testing.T) {
	c := Comparison{Postgres: "mysql://x", Rounds: -1, Config: Config{Tasks: -1}}
	err := c.Validate()
	require.ErrorContains(t, err, "--postgres is not a URL that begins with postgres://")
	require.ErrorContains(t, err, "--rounds is -1; want 1 to 20")
	require.ErrorContains(t, err, "--tasks is -1")
}

// small is a comparison that has no tools but those that are named, which are scripts.
func small(t *testing.T, tools map[string]string) Comparison {
	t.Helper()
	dir := t.TempDir()
	c := config(t)
	c.Tasks, c.Rate, c.Duration = 40, 100, 200*time.Millisecond
	return Comparison{
		Config: c, Postgres: "postgres://nobody@127.0.0.1:1/none", Agenda: true, Rounds: 1,
		tools: func(name string) (string, error) {
			script, there := tools[name]
			if !there {
				return "", exec.ErrNotFound
			}
			path := filepath.Join(dir, name)
			return path, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700) //nolint:gosec // it is to be run
		},
	}
}

func TestWhatIsNotInstalledIsALineAndNoError(t *testing.T) {
	all, err := Compare(t.Context(), small(t, nil))
	require.NoError(t, err)
	require.Len(t, all, 3)
	ours := all[0]
	require.Equal(t, "mscheduler", ours.Scheduler)
	require.Equal(t, "embedded file, each commit synced", ours.Server)
	require.Equal(t, 40, ours.Tasks)
	require.Positive(t, *ours.TasksPerSecond)
	require.Positive(t, ours.Latency.P50)
	require.Equal(t, []string{"River", "not run: go is not installed"}, all[1].Row()[:2])
	require.Equal(t, []string{"Agenda", "not run: node is not installed"}, all[2].Row()[:2])
	require.Len(t, all[1].Row(), len(ComparedHeadings))
	require.Len(t, ours.Row(), len(ComparedHeadings))

	c := small(t, nil)
	c.Postgres, c.Agenda = "", false
	all, err = Compare(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, "no --postgres", all[1].NotRun)
	require.Equal(t, "no --agenda", all[2].NotRun)
}

// Scripts in the place of go, node and npm: what their programs print becomes the table, and one that fails is
// a line with its last words.
func TestWhatTheProgramsSayBecomesTheTable(t *testing.T) {
	const report = `{"version":"1.2","server":"a server","drain_ms":10,"client_cpu_us":400,"server_cpu_us":800,"late_ms":[3,1,2]}`
	all, err := Compare(t.Context(), small(t, map[string]string{
		"go":   "printf '#!/bin/sh\\necho not for programs\\necho %s' \"'" + strings.ReplaceAll(report, `"`, `\"`) + "'\" > \"$3\" && chmod +x \"$3\"",
		"npm":  "true",
		"node": "echo one >&2; echo the last words >&2; exit 3",
	}))
	require.NoError(t, err)
	river := all[1]
	require.Empty(t, river.NotRun)
	require.Equal(t, "River 1.2", river.Scheduler)
	require.Equal(t, "a server", river.Server)
	require.InDelta(t, 4000, *river.TasksPerSecond, 0.1)
	require.InDelta(t, 10, *river.ClientCPU, 0.1)
	require.InDelta(t, 20, *river.ServerCPU, 0.1)
	require.Equal(t, &Latency{P50: 2, P95: 3, P99: 3, Max: 3}, river.Latency)
	require.InDelta(t, 4000 / *all[0].TasksPerSecond, *river.Ratio, 0.01)
	require.Equal(t, "the last words", all[2].NotRun)
}

func TestABuildThatFailsIsALine(t *testing.T) {
	c := small(t, map[string]string{"go": "echo no such module >&2; exit 1"})
	c.Agenda = false
	all, err := Compare(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, "go build: no such module", all[1].NotRun)
}

func TestAComparisonEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("enough"))
	_, err := Compare(ctx, small(t, nil))
	require.Error(t, err)
}

func TestMediansAreThoseOfEachNumber(t *testing.T) {
	turn := func(rate, cpu, late float64) Compared {
		return Compared{TasksPerSecond: &rate, ClientCPU: &cpu, Latency: &Latency{P50: late, P95: late, P99: late, Max: late}}
	}
	m := medians([]Compared{turn(1, 30, 5), turn(3, 10, 4), turn(2, 20, 6)})
	require.InDelta(t, 2, *m.TasksPerSecond, 0)
	require.InDelta(t, 20, *m.ClientCPU, 0)
	require.InDelta(t, 5, m.Latency.P50, 0)
	require.Nil(t, m.ServerCPU)
}
