package consumer

import (
	"context"
	"slices"

	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/model"
)

// maxOffers is how many lists of tasks wait to be claimed. Events and fetches find those beyond.
const maxOffers = 64

// offered takes tasks that an engine of this process lets run: the next nodes of streams, mostly of
// those whose last node has just ended here. They are claimed without a search and without an event.
func (c *Consumer) offered(tasks []*model.Task) {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t *model.Task) bool { return c.handlerOf(t.Type) == nil })
	if len(tasks) == 0 || c.isStopping() {
		return
	}
	select {
	case c.offers <- tasks:
	default:
	}
}

// offerLoop claims what was offered.
func (c *Consumer) offerLoop(ctx context.Context) {
	f := newFollower(c, stream.NewRanks())
	for {
		select {
		case <-ctx.Done():
			return
		case tasks := <-c.offers:
			if err := f.claim(ctx, tasks); err != nil && ctx.Err() == nil {
				c.health.Report(err)
				c.seeker.Forget()
				c.wake.now() // the fetch finds them
			}
		}
	}
}
