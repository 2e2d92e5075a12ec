package sim

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/embedded"
)

// database is the server, in a file, with a clock of its own.
type database struct {
	path string
	off  atomic.Int64 // of its clock, nanoseconds

	mu     sync.Mutex
	server *embedded.Server // nil = it is down
	listen *pipes
}

func (d *database) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listen = newPipes()
	var err error
	d.server, err = embedded.Start(embedded.Options{Listener: d.listen, Path: d.path, Now: d.now})
	return err
}

func (d *database) now() time.Time { return time.Now().Add(time.Duration(d.off.Load())) }

func (d *database) jump(by time.Duration) { d.off.Add(int64(by)) }

// stop ends the server. What it has acknowledged is in its file.
func (d *database) stop() error {
	d.mu.Lock()
	s := d.server
	d.server = nil
	d.mu.Unlock()
	return s.Close()
}

// dial connects to the server.
func (d *database) dial() (net.Conn, error) {
	d.mu.Lock()
	up, l := d.server != nil, d.listen
	d.mu.Unlock()
	if !up {
		return nil, errRefused
	}
	return l.dial(context.Background())
}
