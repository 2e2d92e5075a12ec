package consumer

import (
	"context"
	"slices"

	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/model"
)

// maxOffers is how many lists of tasks wait to be claimed. Fetches find those beyond.
const maxOffers = 64

// offered takes tasks whose turn has come, mostly since an execution of this process has ended: the next nodes of
// streams, and the next tasks of keys. They are claimed without a search and without an event.
func (c *Consumer) offered(tasks []*model.Task) {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t *model.Task) bool { return c.handlerOf(t.Type) == nil })
	if len(tasks) == 0 || c.isStopping() {
		return
	}
	select {
	case c.offers <- tasks:
	default:
		c.leaveToFetch(tasks)
	}
}

// leaveToFetch leaves tasks to the next fetch.
func (c *Consumer) leaveToFetch(tasks []*model.Task) {
	for _, t := range tasks {
		c.seeker.Hear(t)
	}
	c.wake.now()
}

// offerLoop claims what was offered. What gathers during a claim has one claim.
func (c *Consumer) offerLoop(ctx context.Context) {
	f := newFollower(c, stream.NewRanks())
	f.next = true
	for {
		select {
		case <-ctx.Done():
			return
		case tasks := <-c.offers:
			for range len(c.offers) {
				tasks = append(tasks, <-c.offers...)
			}
			if err := f.claim(ctx, tasks); err != nil && ctx.Err() == nil {
				c.health.Report(err)
				c.seeker.Forget()
				c.wake.now() // the fetch finds them
			}
		}
	}
}
