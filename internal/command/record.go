package command

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

// recorder has what a room counts added to the series: a process that only answers calls has no loop that
// would. Between a count and the end of its minute it has a timer, and otherwise nothing.
type recorder struct {
	store *store.Store
	armed atomic.Bool

	mu     sync.Mutex
	timer  *time.Timer // nil = nothing was counted yet
	closed bool
}

// clockMargin is how much slower the database's clock may pass than this machine's until the minute is over.
const clockMargin = time.Second

// soon has what was counted recorded when the minute is over.
func (r *recorder) soon() {
	if r.armed.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.armed.Swap(true) {
		return
	}
	r.timer = time.AfterFunc(r.store.Measure.UntilRecord(r.store.Clock.Now())+clockMargin, func() {
		r.armed.Store(false)
		if !r.store.Series.Record(context.Background(), false) { // else nobody would before the next count
			r.soon()
		}
	})
}

// close records a last time, for as long as ctx allows, unless nothing was ever counted.
func (r *recorder) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	timer := r.timer
	r.mu.Unlock()
	if timer != nil {
		timer.Stop()
		r.store.Series.Record(ctx, true)
	}
}
