package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

func idle(c *Config) []part {
	var parts []part
	for _, n := range []int{1, c.or(c.Processes, 10, 10)} {
		if len(parts) == 1 && n == 1 {
			break
		}
		parts = append(parts, part{fmt.Sprintf("idle/%d", n), n, rest})
	}
	return parts
}

// rest counts what workers send that have nothing to do, once they watch. It has no
// yardstick: nothing is written for any task.
func rest(ctx context.Context, r *run) error {
	c, dismiss := r.crew()
	defer dismiss()
	for i := range r.res.Processes {
		s := r.spec(i)
		s.Latencies = true // to hear that it watches
		if _, err := c.hire(s, ""); err != nil {
			return err
		}
	}
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	if err := r.awaitWatch(ctx, c); err != nil {
		return err
	}
	if err := pause(ctx, 3*time.Second); err != nil { // what begins has ended
		return err
	}
	defer r.cfg.OnMeasure(r.name)()
	before, began := c.totals(), r.cfg.Clock.Monotonic()
	lasts := r.cfg.lasting(3*time.Minute, time.Minute)
	show := r.progress("resting")
	var err error
	for passed := time.Duration(0); passed < lasts && err == nil; passed = r.cfg.Clock.Monotonic() - began {
		show(int(passed/time.Second), int(lasts/time.Second))
		err = pause(ctx, min(time.Second, lasts-passed))
	}
	took := r.cfg.Clock.Monotonic() - began
	t := c.totals().since(before)
	r.res.counted(t)
	r.note("commands a minute: %s", perMinute(t.Commands, took))
	return err
}

// perMinute lists commands by how often they come.
func perMinute(commands map[string]int64, took time.Duration) string {
	names := slices.SortedFunc(maps.Keys(commands), func(a, b string) int {
		if commands[a] != commands[b] {
			return int(commands[b] - commands[a])
		}
		return strings.Compare(a, b)
	})
	var all int64
	var list []string
	for _, name := range names {
		all += commands[name]
		list = append(list, fmt.Sprintf("%s %.1f", name, float64(commands[name])/took.Minutes()))
	}
	return fmt.Sprintf("%.1f (%s)", float64(all)/took.Minutes(), strings.Join(list, ", "))
}
