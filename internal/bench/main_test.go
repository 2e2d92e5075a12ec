package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is a worker when this is set, so that the tests run real processes.
const asWorker = "MSCHEDULER_TEST_AS_BENCH_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// config is a bench of a few tasks.
func config(t *testing.T, scenarios ...string) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Scenarios: scenarios, Database: "bench_test", Tasks: 60, Processes: 2, Concurrency: 5,
		Executable: self, WorkerEnv: append(os.Environ(), asWorker+"=1"),
	}
	numbers := map[string]*int{"--tasks": &c.Tasks, "--processes": &c.Processes, "--concurrency": &c.Concurrency}
	for _, s := range scenarios {
		for _, p := range c.partial() {
			if !slices.Contains(p.users, s) { // else it is refused
				*numbers[p.name] = 0
			}
		}
	}
	return c
}

// all runs a bench to its end.
func all(t *testing.T, c Config) map[string]Result {
	t.Helper()
	out := map[string]Result{}
	err := Run(t.Context(), c, func(r Result) error {
		out[r.Scenario] = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
