package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/fleet"
)

// crew is the workers of a scenario and what they reported. The fleet's lock guards it.
type crew struct {
	fleet.Fleet
	cfg     *Config
	members []*member
	late    []float64
	sent    []float64
	steps   []float64
	took    []float64
	starts  []start
	fetches []fetch
}

// member is one worker.
type member struct {
	*fleet.Process
	latest  report
	ready   bool
	started bool
}

// hire starts a worker: in a process of its own, of the build that is named, or in a
// goroutine of this process.
func (c *crew) hire(s spec, executable string) (err error) {
	if s.Own && executable == "" {
		return errors.New("this scenario starts the binary again as workers, and the system does not say where it is")
	}
	m := &member{}
	cmd := fleet.Command{Name: "worker " + s.WorkerID, Path: executable, Args: c.cfg.WorkerArgs, Env: fleet.Env(c.cfg.WorkerEnv)}
	if !s.Own {
		cmd.Func = Work
	}
	cmd.Line = func(line []byte) error {
		var r report
		known := json.Unmarshal(line, &r) == nil // what is no report is of no interest
		if r.Failed != "" {
			return errors.New(r.Failed)
		}
		if known {
			c.Set(func() { c.take(m, r) })
		}
		return nil
	}
	if m.Process, err = c.Start(cmd); err != nil {
		return err
	}
	c.Set(func() { c.members = append(c.members, m) })
	if err := json.NewEncoder(m).Encode(s); err != nil {
		return fmt.Errorf("starting %s: %w", s.WorkerID, err)
	}
	return nil
}

func (c *crew) take(m *member, r report) {
	c.late, c.sent = append(c.late, r.Late...), append(c.sent, r.Sent...)
	c.steps, c.took = append(c.steps, r.Steps...), append(c.took, r.Took...)
	c.starts, c.fetches = append(c.starts, r.Starts...), append(c.fetches, r.Fetches...)
	if r.Ready {
		m.ready = true
		return
	}
	r.Late, r.Sent, r.Steps, r.Took, r.Starts, r.Fetches = nil, nil, nil, nil, nil, nil
	m.latest = r
}

// begin waits until all are ready, and gives those that wait the word.
func (c *crew) begin(ctx context.Context) (began time.Time, err error) {
	err = c.Await(ctx, func() bool { return !slices.ContainsFunc(c.members, func(m *member) bool { return !m.ready }) })
	if err != nil {
		return began, err
	}
	began = c.cfg.Clock.Now()
	for _, m := range c.members {
		if m.started {
			continue
		}
		m.started = true
		if _, err := io.WriteString(m, "go\n"); err != nil {
			return began, fmt.Errorf("starting a worker: %w", err)
		}
	}
	return began, nil
}

// sum is the sum of what all workers counted, under the lock.
func (c *crew) sum() (t totals) {
	for _, m := range c.members {
		t = t.plus(m.latest.totals, 1)
	}
	return t
}

func (c *crew) totals() (t totals) {
	c.Look(func() { t = c.sum() })
	return t
}

// watching counts the workers with a change stream.
func (c *crew) watching() (n int) {
	for _, m := range c.members {
		if m.latest.Watching {
			n++
		}
	}
	return n
}
