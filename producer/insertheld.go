package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/command"
)

// A key that was sent inside an open transaction can be neither stored nor found to exist
// until that transaction ends. Its sender waits for that, apart from the others.

const (
	// heldPatience is how long a sender without a deadline waits for such a key: longer than
	// MongoDB lets a transaction stay open by default.
	heldPatience              = command.OpenFor
	firstHeldPause, heldPause = 20 * time.Millisecond, 500 * time.Millisecond
)

// insertHeld stores tasks whose keys an open transaction holds, when that has ended. It
// gives up when ctx ends, and after heldPatience; then the errors stay.
func (p *Producer) insertHeld(ctx context.Context, outs []*outgoing) {
	local := p.room.Store.Local()
	until := local.Monotonic() + heldPatience
	for pause := firstHeldPause; len(outs) > 0; pause = min(2*pause, heldPause) {
		if !clock.Pause(ctx, pause) {
			for _, o := range outs {
				o.err = fmt.Errorf("%w: %w", o.err, context.Cause(ctx))
			}
			return
		}
		if local.Monotonic() > until {
			return
		}
		for _, o := range outs {
			o.err, o.held, o.tried = nil, false, true
		}
		p.insert(ctx, outs)
		var held []*outgoing
		for _, o := range outs {
			if o.held {
				held = append(held, o)
			}
		}
		outs = held
	}
}
