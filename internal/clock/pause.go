package clock

import (
	"context"
	"time"
)

// Pause waits for d, or until ctx ends; it says whether the context goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	PauseOr(ctx, d, nil)
	return ctx.Err() == nil
}

// PauseOr is [Pause] that something on the channel ends, too; woken says that it did.
func PauseOr(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
		return true
	case <-t.C:
	}
	return false
}

// Wake ends the pause of whoever waits on the channel, or the next one. The channel has room for
// one token: woken twice is woken once.
func Wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
