package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/fleet"
)

// order configures the program of another scheduler, which reads it from the variable COMPARE.
type order struct {
	URI         string  `json:"uri"`
	Database    string  `json:"database"` // of PostgreSQL: the schema
	Tasks       int     `json:"tasks"`
	Concurrency int     `json:"concurrency"`
	ArgsBytes   int     `json:"args_bytes"`
	Rate        float64 `json:"rate"`
	PacedMS     int64   `json:"paced_ms"`
}

// told is a line of such a program: a phase that it has reached, or what it measured.
type told struct {
	Phase     string    `json:"phase"`
	Version   string    `json:"version"`
	Server    string    `json:"server"`
	DrainMS   float64   `json:"drain_ms"`
	ClientCPU int64     `json:"client_cpu_us"`
	ServerCPU *int64    `json:"server_cpu_us"` // nil = not known to it
	Late      []float64 `json:"late_ms"`
}

// programEnd is how long a program may clean up after an interrupt.
const programEnd = time.Minute

// program runs the program of another scheduler in its directory. phase hears of what it reaches;
// nil = nobody does.
func (c *Comparison) program(ctx context.Context, dir string, args []string, o order, phase func(string)) (Compared, error) {
	o.Tasks, o.Concurrency, o.ArgsBytes, o.Rate, o.PacedMS = c.Tasks, c.Concurrency, c.ArgsBytes, c.Rate, c.Duration.Milliseconds()
	text, err := json.Marshal(o)
	if err != nil {
		return Compared{}, err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(c.dir, dir), fleet.Env(c.WorkerEnv, "COMPARE="+string(text))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = programEnd
	var said strings.Builder
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return Compared{}, fmt.Errorf("starting %s: %w", filepath.Base(args[0]), err)
	}
	var last told
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var t told
		if json.Unmarshal(lines.Bytes(), &t) != nil {
			continue // it is for people
		}
		if last = t; t.Phase != "" && phase != nil {
			phase(t.Phase)
		}
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		return Compared{}, fmt.Errorf("%w\n%s", err, said.String())
	}
	return c.comparedOf(last)
}

// comparedOf is what a program said at its end.
func (c *Comparison) comparedOf(t told) (Compared, error) {
	if t.DrainMS <= 0 {
		return Compared{}, errors.New("it did not say what it measured")
	}
	took := time.Duration(t.DrainMS * float64(time.Millisecond))
	out := Compared{
		Scheduler: t.Version, Server: t.Server, Tasks: c.Tasks, TasksPerSecond: perSecond(c.Tasks, took), Latency: percentiles(t.Late),
		ClientCPU: (&spent{tasks: c.Tasks, cpu: time.Duration(t.ClientCPU) * time.Microsecond}).cpuEach(),
	}
	if t.ServerCPU != nil {
		out.ServerCPU = (&spent{tasks: c.Tasks, cpu: time.Duration(*t.ServerCPU) * time.Microsecond}).cpuEach()
	}
	return out, nil
}
