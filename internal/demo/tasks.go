package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// The tasks' leases are short, so that nobody has to wait long for a takeover.
const (
	pingInterval = 500 * time.Millisecond
	lease        = 2 * time.Second
	// perSecond is how many tasks become due in a second, at least: about a third of
	// what three workers can do, so that one that is left keeps up.
	perSecond = 200
	// the time over which the tasks become due is bounded on both sides: long enough for
	// the kill and the freeze to happen while there is work, short enough to watch.
	shortestSpread = 6 * time.Second
	longestSpread  = 30 * time.Second
	// lead is before the first task is due, so that what is measured is not the send.
	lead = time.Second
)

func taskKey(i int) string { return fmt.Sprintf("demo-%06d", i) }

func taskID(key string) string { return model.TaskID("", "http", key) }

// spread is the time over which n tasks become due.
func spread(n int) time.Duration {
	return min(max(time.Duration(n)*time.Second/perSecond, shortestSpread), longestSpread)
}

// writeTasks writes the JSONL file: n tasks that call the target, due evenly spread.
func writeTasks(path string, n int, url func(task string) string) error {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	over := spread(n)
	for i := range n {
		due := lead + over*time.Duration(i)/time.Duration(n)
		line := map[string]any{
			"type": "http", "key": taskKey(i), "in_ms": due.Milliseconds(),
			"args": map[string]any{"method": "POST", "url": url(taskKey(i)), "body": map[string]any{"task": i}},
			"options": map[string]any{
				"ping_interval_ms": pingInterval.Milliseconds(), "worker_timeout_ms": lease.Milliseconds(),
				"retry": map[string]any{"strategy": "fixed", "interval_ms": 500},
			},
		}
		if err := enc.Encode(line); err != nil {
			return fmt.Errorf("writing the tasks: %w", err)
		}
	}
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the tasks: %w", err)
	}
	return nil
}
