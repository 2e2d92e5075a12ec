package dashboard

import (
	"bytes"
	"net/http"
	"sync"
	"sync/atomic"
)

// changes takes the stream of events that the API writes, and keeps of it only whether there were any.
type changes struct {
	header http.Header
	status atomic.Int64
	begun  chan struct{} // closed with the status
	ended  chan struct{} // closed when the API's handler has returned
	once   sync.Once
	event  atomic.Bool // since the last take
	beat   atomic.Bool
}

func newChanges() *changes {
	return &changes{header: http.Header{}, begun: make(chan struct{}), ended: make(chan struct{})}
}

func (c *changes) Header() http.Header { return c.header }

func (c *changes) WriteHeader(status int) {
	c.once.Do(func() {
		c.status.Store(int64(status))
		close(c.begun)
	})
}

// Write takes one event, or a comment that only says that the stream goes on.
func (c *changes) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if bytes.Contains(p, []byte("\ndata:")) {
		c.event.Store(true)
	} else {
		c.beat.Store(true)
	}
	return len(p), nil
}

// Flush implements [http.Flusher].
func (c *changes) Flush() {}

// take returns what has come since the last call.
func (c *changes) take() (events, beats bool) { return c.event.Swap(false), c.beat.Swap(false) }
