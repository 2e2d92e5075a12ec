package periodic

import (
	"context"
)

// runsWait says whether a run of any rule waits for another's end.
func (p *Periodic) runsWait(ctx context.Context) (bool, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.store.Rules.RunsWait(call)
}
