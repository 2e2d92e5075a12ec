package dashboard

import (
	"context"
	"net/http"
	"time"
)

const (
	// liveEvery is how often a page learns, at most, that something has changed.
	liveEvery = time.Second
	// liveTimeout is how long a browser may take to accept a line.
	liveTimeout = 30 * time.Second
)

// live is Server-Sent Events without data: something of what the query names has changed. A page then reads itself again.
// However much happens, that is one line a second. The API's stream of events is behind it, so its filters and its
// permissions apply. It ends when that ends, and the browser comes back.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	inner := d.toAPI(ctx, r, http.MethodGet, "/events", r.URL.Query())
	changes := newChanges()
	go func() {
		defer close(changes.ended)
		defer func() { // net/http recovers from panics of its own goroutines only
			if broken := recover(); broken != nil {
				d.config.Logger.Error().Interface("panic", broken).Msg("the events of a page of the dashboard ended with a panic")
			}
		}()
		d.config.API.ServeHTTP(changes, inner)
	}()
	select {
	case <-changes.begun:
	case <-changes.ended:
	}
	switch status := changes.status.Load(); status {
	case http.StatusOK:
	case http.StatusUnauthorized: // the session has ended
		http.Error(w, "signed out", http.StatusUnauthorized)
		return
	default:
		http.Error(w, "not available", int(max(status, http.StatusServiceUnavailable)))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	tell := func(line string) bool {
		_ = c.SetWriteDeadline(d.clock.Now().Add(liveTimeout))
		_, err := w.Write([]byte(line))
		return err == nil && c.Flush() == nil
	}
	if !tell(": live\n\n") {
		return
	}
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-changes.ended:
			return
		case <-tick.C:
		}
		if events, beats := changes.take(); events && !tell("data: changed\n\n") || beats && !tell(": still here\n\n") {
			return
		}
	}
}
