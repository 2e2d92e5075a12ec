package bench

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/scratch"
)

// others are programs of other schedulers. Nothing here is built or installed with the product:
// [Compare] copies them to a temporary directory and uses the go or the npm that it finds.
//
//go:embed others
var others embed.FS

// Comparison is the same work on this product and on other schedulers.
type Comparison struct {
	// Config names the server, the number of tasks, the concurrency and the pace. Without a URI each
	// turn has an embedded server on a file, which syncs each commit as the other servers do.
	Config
	Postgres string // URL of the database for River, which gets a schema of its own; "" = River does not run
	Agenda   bool   // run Agenda, against the same MongoDB or an embedded server
	Rounds   int    // of turns; the table has medians. Defaults to 3.

	dir   string    // where the others are built
	tools lookupper // nil = those of PATH
}

// lookupper finds a program, as [exec.LookPath] does.
type lookupper func(name string) (string, error)

// Compared is what one scheduler did.
type Compared struct {
	Scheduler string `json:"scheduler"`
	Server    string `json:"server"`  // and when a commit is durable
	NotRun    string `json:"not_run"` // why it did not run; "" = it did
	Tasks     int    `json:"tasks"`

	TasksPerSecond *float64 `json:"tasks_per_second"`       // of a backlog
	Ratio          *float64 `json:"ratio"`                  // of that to this product's
	ClientCPU      *float64 `json:"client_cpu_us_per_task"` // of the drain
	ServerCPU      *float64 `json:"server_cpu_us_per_task"`
	Latency        *Latency `json:"latency_ms"` // from before the call that sends to the start of the handler
}

// ComparedHeadings are those of the table; [Compared.Row] has its cells.
var ComparedHeadings = []string{"SCHEDULER", "SERVER", "TASKS", "TASKS/S", "RATIO", "CLIENT US/TASK", "SERVER US/TASK", "P50 MS", "P99", "MAX"}

// Row is a line of the table, "" where nothing was measured.
func (c Compared) Row() []string {
	if c.NotRun != "" {
		return append([]string{c.Scheduler, "not run: " + c.NotRun}, make([]string, len(ComparedHeadings)-2)...)
	}
	row := []string{c.Scheduler, c.Server, fmt.Sprint(c.Tasks), shown(c.TasksPerSecond, 0), shown(c.Ratio, 2), shown(c.ClientCPU, 0), shown(c.ServerCPU, 0)}
	if c.Latency == nil {
		return append(row, "", "", "")
	}
	return append(row, shown(&c.Latency.P50, 1), shown(&c.Latency.P99, 1), shown(&c.Latency.Max, 1))
}

// maxRounds bounds [Comparison.Rounds].
const maxRounds = 20

// Validate says everything that is wrong.
func (c *Comparison) Validate() error {
	var errs []error
	if c.Rounds < 0 || c.Rounds > maxRounds {
		errs = append(errs, input.Invalid("--rounds", "is %d; want 1 to %d", c.Rounds, maxRounds))
	}
	if c.Postgres != "" && !strings.HasPrefix(c.Postgres, "postgres://") && !strings.HasPrefix(c.Postgres, "postgresql://") {
		errs = append(errs, input.Invalid("--postgres", "is not a URL that begins with postgres://"))
	}
	return errors.Join(c.Config.Validate(), errors.Join(errs...))
}

// contender is a scheduler that has its turn in each round.
type contender struct {
	name    string
	prepare func(context.Context, *Comparison) (notRun string) // nil = there is nothing to prepare
	turn    func(context.Context, *Comparison) (Compared, error)
}

var contenders = []contender{
	{"mscheduler", nil, turnOfOurs},
	{"River", prepareRiver, turnOfRiver},
	{"Agenda", prepareAgenda, turnOfAgenda},
}

// Compare has the schedulers do the same work by turns, and returns a line for each. Of one that
// cannot run the line says why.
func Compare(ctx context.Context, c Comparison) (out []Compared, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Tasks = c.or(c.Tasks, 20_000, 2000)
	c.Concurrency = cmp.Or(c.Concurrency, 1000)
	c.Duration = c.lasting(20*time.Second, 3*time.Second)
	c.Rounds = c.or(c.Rounds, 3, 1)
	c.Config = c.withDefaults()
	if c.tools == nil {
		c.tools = exec.LookPath
	}
	if c.dir, err = os.MkdirTemp("", "mscheduler-compare-"); err != nil {
		return nil, fmt.Errorf("making a directory for the other schedulers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	turns := make([][]Compared, len(contenders))
	for i, x := range contenders {
		if x.prepare == nil {
			continue
		}
		c.OnProgress(x.name, "preparing", 0, 0)
		if reason := x.prepare(ctx, &c); reason != "" {
			turns[i] = []Compared{{NotRun: reason}}
		}
	}
	for range c.Rounds {
		for i, x := range contenders {
			if len(turns[i]) > 0 && turns[i][0].NotRun != "" {
				continue
			}
			c.OnProgress(x.name, "its turn", 0, 0)
			one, err := x.turn(ctx, &c)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil && x.prepare == nil:
				return nil, err
			case err != nil:
				one = Compared{NotRun: oneLine(err)}
				turns[i] = nil
			}
			turns[i] = append(turns[i], one)
		}
	}
	for i, x := range contenders {
		m := medians(turns[i])
		m.Scheduler = strings.TrimSpace(x.name + " " + m.Scheduler)
		if i > 0 {
			m.Ratio = quotient(m.TasksPerSecond, out[0].TasksPerSecond)
		}
		out = append(out, m)
	}
	return out, nil
}

// oneLine shortens what a program said to its last line.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return lines[len(lines)-1]
}

// medians is the middle of several turns, in each number.
func medians(turns []Compared) Compared {
	m := turns[0]
	of := func(value func(*Compared) *float64) *float64 {
		var all []float64
		for i := range turns {
			if v := value(&turns[i]); v != nil {
				all = append(all, *v)
			}
		}
		if len(all) == 0 {
			return nil
		}
		slices.Sort(all)
		return ptr(all[len(all)/2])
	}
	m.TasksPerSecond = of(func(c *Compared) *float64 { return c.TasksPerSecond })
	m.ClientCPU = of(func(c *Compared) *float64 { return c.ClientCPU })
	m.ServerCPU = of(func(c *Compared) *float64 { return c.ServerCPU })
	if m.Latency != nil {
		late := func(value func(*Latency) float64) float64 {
			return *of(func(c *Compared) *float64 {
				if c.Latency == nil {
					return nil
				}
				return ptr(value(c.Latency))
			})
		}
		m.Latency = &Latency{
			P50: late(func(l *Latency) float64 { return l.P50 }), P95: late(func(l *Latency) float64 { return l.P95 }),
			P99: late(func(l *Latency) float64 { return l.P99 }), Max: late(func(l *Latency) float64 { return l.Max }),
		}
	}
	return m
}

// onServer is the Config of one turn: where no deployment is named, on a file of its own.
func (c *Comparison) onServer() Config {
	turn := c.Config
	if turn.URI == "" {
		turn.Path = filepath.Join(c.dir, "turn.db")
	}
	return turn
}

// served says what server an engine is, and when its commits are durable.
func served(engine string) string {
	if engine == "embedded file" {
		return engine + ", each commit synced"
	}
	return engine + ", majority writes"
}

// turnOfOurs drains a backlog, then starts tasks at the pace.
func turnOfOurs(ctx context.Context, c *Comparison) (out Compared, err error) {
	config := c.onServer()
	drained := drain(&config, "compare/drain", 1, "")
	drained.raw = yardstick{}
	pace := config
	pace.Tasks = 0 // as many as the pace makes
	started := paced(&pace)[0]
	started.name, started.raw, started.load, started.here = "compare/paced", yardstick{}, nil, drained.here
	measure := started.measure
	started.measure = func(ctx context.Context, r *run) error {
		err := measure(ctx, r)
		r.crew.Look(func() { r.late = r.crew.sent })
		return err
	}
	all := &results{}
	for _, p := range []part{drained, started} {
		err := runPart(ctx, &config, p, all, func(r Result) error {
			if r.Scenario == started.name {
				out.Latency = r.Latency
				return nil
			}
			out = Compared{Server: served(r.Engine), Tasks: r.Tasks, TasksPerSecond: r.TasksPerSecond, ClientCPU: r.ClientCPU, ServerCPU: r.ServerCPU}
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// unpack copies files of the others to a directory, under other names.
func (c *Comparison) unpack(dir string, files map[string]string) error {
	if err := os.MkdirAll(filepath.Join(c.dir, dir), 0o700); err != nil {
		return err
	}
	for from, to := range files {
		data, err := fs.ReadFile(others, "others/"+from)
		if err == nil {
			err = os.WriteFile(filepath.Join(c.dir, dir, to), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build runs a command of a tool in a directory, and says why it failed.
func (c *Comparison) build(ctx context.Context, dir, tool string, args ...string) (notRun string) {
	path, err := c.tools(tool)
	if err != nil {
		return tool + " is not installed"
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = filepath.Join(c.dir, dir)
	cmd.Env = fleet.Env(c.WorkerEnv, "GOWORK=off", "GOFLAGS=-mod=mod")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("%s %s: %s", tool, args[0], oneLine(fmt.Errorf("%w\n%s", err, output)))
	}
	return ""
}

func prepareRiver(ctx context.Context, c *Comparison) (notRun string) {
	if c.Postgres == "" {
		return "no --postgres"
	}
	if err := c.unpack("river", map[string]string{"river.go.txt": "main.go", "river.mod.txt": "go.mod"}); err != nil {
		return oneLine(err)
	}
	return c.build(ctx, "river", "go", "build", "-o", riverProgram, ".")
}

const riverProgram = "river-compare"

func turnOfRiver(ctx context.Context, c *Comparison) (Compared, error) {
	path := filepath.Join(c.dir, "river", riverProgram)
	return c.program(ctx, "river", []string{path}, order{URI: c.Postgres, Database: c.Database}, nil)
}

func prepareAgenda(ctx context.Context, c *Comparison) (notRun string) {
	if !c.Agenda {
		return "no --agenda"
	}
	if _, err := c.tools("node"); err != nil {
		return "node is not installed"
	}
	if err := c.unpack("agenda", map[string]string{"agenda.mjs": "agenda.mjs", "package.json": "package.json"}); err != nil {
		return oneLine(err)
	}
	return c.build(ctx, "agenda", "npm", "install", "--no-audit", "--no-fund")
}

func turnOfAgenda(ctx context.Context, c *Comparison) (out Compared, err error) {
	node, err := c.tools("node")
	if err != nil {
		return out, err
	}
	config := c.onServer()
	db, err := scratch.Open(ctx, scratch.Options{User: "bench", URI: config.URI, Path: config.Path, Name: config.Database, Clock: config.Clock})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, db.Close(ctx)) }()
	used := &serverWatch{run: run{db: db, res: &Result{}}}
	out, err = c.program(ctx, "agenda", []string{node, "agenda.mjs"}, order{URI: db.URI, Database: db.Name}, func(phase string) { used.phase(ctx, phase) })
	out.Server = served(db.Engine)
	out.ServerCPU = used.each(out.Tasks)
	return out, err
}

// serverWatch reads the processor time of a MongoDB, or of the embedded server, during the drain.
type serverWatch struct {
	run
	before, after usage
}

func (w *serverWatch) phase(ctx context.Context, phase string) {
	switch phase {
	case "drain":
		w.before = w.serverUsage(ctx)
	case "drained":
		w.after = w.serverUsage(ctx)
	}
}

func (w *serverWatch) each(tasks int) *float64 {
	if w.before.cpuErr != nil || w.after.cpuErr != nil {
		return nil
	}
	return (&spent{tasks: tasks, cpu: w.after.cpu - w.before.cpu}).cpuEach()
}
