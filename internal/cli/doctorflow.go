package cli

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/human"
)

// flows says whether an engine carries on the flows that are not over.
func (d *doctor) flows(ctx context.Context, engine bool) {
	const few = 100
	running, err := d.store.Flows.List(ctx, "", graph.StatusRunning, nil, few)
	if err != nil {
		d.fail("flows", err, "")
		return
	}
	n := human.Plural(len(running), "flow is", "flows are")
	if len(running) == few {
		n = fmt.Sprintf("at least %d flows are", few)
	}
	switch {
	case len(running) == 0:
		d.ok("flows", "none is RUNNING")
	case engine:
		d.ok("flows", "%s RUNNING, and a live engine carries them on", n)
	default:
		d.warn("flows", fmt.Sprintf("%s RUNNING, and no flow engine lives: their nodes do not start; among them %s", n, human.FlowID(running[0].ID)),
			"start one: mscheduler work --flow, or a service that calls flow.Flows.Run")
	}
}
