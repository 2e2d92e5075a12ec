package bench

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
)

// Config of a bench. A zero number is the default of each scenario.
type Config struct {
	// Scenarios to run, in this order. Defaults to all.
	Scenarios []string
	// URI of a MongoDB deployment; "" = an embedded server of the bench's own.
	URI string
	// Path of the embedded server's file, which must not exist; "" = in memory.
	Path string
	// Database that is made and dropped; one that exists is refused.
	Database string

	Tasks       int           // in steady, of the raw writes only; in limited, of the backlog
	Processes   int           // of fleet, paced, limited and idle
	Concurrency int           // of each process; in send, senders at once. Defaults to 100.
	Duration    time.Duration // of paced without Tasks, steady, idle, archive, periodic and plan
	Rate        float64       // of paced, in tasks a second. Defaults to 100.
	ArgsBytes   int           // padding in each task's arguments
	// Later and Others are how many tasks that are not due, or meant for other workers,
	// delayed puts beside its own.
	Later, Others int
	// Results makes the handlers of preloaded, fleet and delayed return a result each. The raw writes
	// then finish each task with a statement of its own.
	Results bool
	// RTT repeats preloaded and fleet behind a proxy that adds this time to each round trip.
	// 0 = they are not repeated.
	RTT time.Duration
	// Against repeats preloaded and fleet with workers of another build of this binary.
	// "" = they are not repeated.
	Against string
	// Small makes the defaults a tenth or less: all scenarios take about two minutes.
	Small bool

	// Executable is this binary, which is started again as workers; "" = scenarios that
	// need real processes fail.
	Executable string
	// WorkerArgs make Executable a worker (see [Work]); WorkerEnv is its environment, less the
	// settings of mscheduler.
	WorkerArgs, WorkerEnv []string

	// OnProgress hears how far a step is; total 0 = not known. Defaults to nobody.
	OnProgress func(scenario, step string, done, total int)
	// OnMeasure is called when a part begins to measure, after its raw writes and its
	// preparations, and what it returns when it ends: for a profile. Defaults to nothing.
	OnMeasure func(part string) (end func())
	// WorkerProfile names the file for the CPU profile of a worker process; "" = none.
	// Defaults to none for any.
	WorkerProfile func(part, worker string) string
	Clock         clock.Clock // nil = the machine's
}

// Bounds of what can be asked for.
const (
	maxTasks     = 10_000_000
	maxProcesses = 64
	maxArgs      = 100_000
	maxRTT       = time.Second
)

// Validate says everything that is wrong with the Config.
func (c *Config) Validate() error {
	var errs []error
	for _, s := range c.Scenarios {
		if !slices.Contains(Names(), s) {
			errs = append(errs, input.Invalid("scenario", "is %q; want some of %s", s, strings.Join(Names(), ", ")))
		}
	}
	for _, f := range []struct {
		name    string
		n, most int
	}{
		{"--tasks", c.Tasks, maxTasks},
		{"--processes", c.Processes, maxProcesses}, {"--concurrency", c.Concurrency, 100_000}, {"--args-bytes", c.ArgsBytes, maxArgs},
		{"--later", c.Later, maxTasks},
		{"--others", c.Others, maxTasks},
	} {
		if f.n < 0 || f.n > f.most {
			errs = append(errs, input.Invalid(f.name, "is %d; want 1 to %d", f.n, f.most))
		}
	}
	for _, f := range c.partial() {
		for _, s := range c.Scenarios {
			if !slices.Contains(f.users, s) {
				errs = append(errs, input.Invalid(f.name, "is not used by %s; it is for %s", c.user(f.name, s), strings.Join(f.users, ", ")))
			}
		}
	}
	if c.Duration < 0 || c.Duration > 24*time.Hour {
		errs = append(errs, input.Invalid("--duration", "is %v; want up to 24h", c.Duration))
	}
	if c.RTT < 0 || c.RTT > maxRTT {
		errs = append(errs, input.Invalid("--rtt", "is %v; want up to %v", c.RTT, maxRTT))
	}
	if c.Against != "" {
		if _, err := exec.LookPath(c.Against); err != nil {
			errs = append(errs, input.Invalid("--against", "is %q, which is not an executable file: %v", c.Against, err))
		}
	}
	if c.RTT > 0 && c.URI != "" {
		if _, err := oneHost(c.URI); err != nil {
			errs = append(errs, err)
		}
	}
	if !(c.Rate >= 0 && c.Rate <= 100_000) { // nor is NaN a rate
		errs = append(errs, input.Invalid("--rate", "is %v; want more than 0, up to 100000 a second", c.Rate))
	}
	return errors.Join(errs...)
}

// partial is a setting that only some scenarios use.
type partial struct {
	name  string
	users []string
}

// partial returns the settings that were given and that only some scenarios use.
func (c *Config) partial() (given []partial) {
	drains := []string{"preloaded", "fleet"}
	timed := []string{"paced", "steady", "idle", "archive", "periodic", "plan"}
	if c.Tasks != 0 {
		timed = timed[1:] // their number says how long paced takes
	}
	for _, f := range []struct {
		given bool
		partial
	}{
		{c.Tasks != 0, partial{"--tasks", without("idle")}},
		{c.Processes != 0, partial{"--processes", []string{"fleet", "paced", "limited", "idle"}}},
		{c.Concurrency != 0, partial{"--concurrency", without("takeover")}},
		{c.Duration != 0, partial{"--duration", timed}},
		{c.ArgsBytes != 0, partial{"--args-bytes", without("idle")}},
		{c.Results, partial{"--results", []string{"preloaded", "fleet", "delayed"}}},
		{c.RTT != 0, partial{"--rtt", drains}},
		{c.Against != "", partial{"--against", drains}},
		{c.Rate != 0, partial{"--rate", []string{"paced"}}},
		{c.Later != 0, partial{"--later", []string{"delayed"}}},
		{c.Others != 0, partial{"--others", []string{"delayed"}}},
	} {
		if f.given {
			given = append(given, f.partial)
		}
	}
	return given
}

// user names a scenario that does not use a setting, as it is configured.
func (c *Config) user(setting, scenario string) string {
	if setting == "--duration" && scenario == "paced" {
		return "paced with --tasks"
	}
	return scenario
}

// without returns all scenarios but one.
func without(name string) []string {
	return slices.DeleteFunc(Names(), func(s string) bool { return s == name })
}

// Warnings says which settings some scenarios of a run of all do not use. If scenarios are named,
// [Config.Validate] refuses those settings.
func (c *Config) Warnings() (out []string) {
	if len(c.Scenarios) > 0 {
		return nil
	}
	for _, f := range c.partial() {
		out = append(out, fmt.Sprintf("%s is used by %s only", f.name, strings.Join(f.users, ", ")))
	}
	return out
}

func (c Config) withDefaults() Config {
	if len(c.Scenarios) == 0 {
		c.Scenarios = Names()
	}
	c.Clock = cmp.Or(c.Clock, clock.System())
	c.Concurrency, c.Rate, c.ArgsBytes = cmp.Or(c.Concurrency, 100), cmp.Or(c.Rate, 100), cmp.Or(c.ArgsBytes, 100)
	if c.OnProgress == nil {
		c.OnProgress = func(string, string, int, int) {}
	}
	if c.OnMeasure == nil {
		c.OnMeasure = func(string) func() { return func() {} }
	}
	if c.WorkerProfile == nil {
		c.WorkerProfile = func(string, string) string { return "" }
	}
	c.Later = c.or(c.Later, 1_000_000, 50_000)
	c.Others = c.or(c.Others, 100_000, 10_000)
	return c
}

// or is what was asked for, else the default of a full or of a small run.
func (c *Config) or(asked, full, small int) int {
	switch {
	case asked != 0:
		return asked
	case c.Small:
		return small
	default:
		return full
	}
}

func (c *Config) lasting(full, small time.Duration) time.Duration {
	return time.Duration(c.or(int(c.Duration), int(full), int(small)))
}
