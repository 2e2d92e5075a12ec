package consumer

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// wideLook decides when a worker with labels (internal/claim) looks at everybody's audience
// as well: for tasks that were sent before their type was claimed by the label. While there
// are some always, else with every poll of a watcher.
type wideLook struct {
	at    time.Duration // monotonic
	every time.Duration
	some  bool
}

func (w *wideLook) due(now time.Duration) bool { return w.some || w.at == 0 || now-w.at >= w.every }

// dueIn finds candidates, best first.
func (c *Consumer) dueIn(ctx context.Context, q store.DueQuery, wide bool) ([]*model.Task, error) {
	found, late, err := c.finder.Due(ctx, q, wide)
	if wide && err == nil {
		c.wide.at, c.wide.some = max(c.cfg.Clock.Monotonic(), 1), late > 0
	}
	return found, err
}

// sameStream names what makes two workers' change streams alike.
func (c *Consumer) sameStream(types []string) []string {
	if c.only == nil {
		return types
	}
	mark := func(kind string, values []string) string {
		return kind + strings.Join(slices.Sorted(slices.Values(values)), "\x00")
	}
	return append(slices.Clone(types), mark("tenants/", c.only.Tenants), mark("categories/", c.only.Categories), mark("creators/", c.only.Creators))
}
