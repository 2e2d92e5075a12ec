package sim

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// database is the server, in a file, with a clock of its own.
type database struct {
	path string
	off  atomic.Int64 // of its clock, nanoseconds
	full atomic.Int64 // until then, in nanoseconds of Unix time, its disk has no space

	mu     sync.Mutex
	server *embedded.Server // nil = it is down
	listen *proxy.Pipes
}

func (d *database) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listen = proxy.ListenPipes()
	var err error
	d.server, err = embedded.Start(embedded.Options{Listener: d.listen, Path: d.path, Now: d.now})
	return err
}

func (d *database) now() time.Time { return time.Now().Add(time.Duration(d.off.Load())) }

func (d *database) jump(by time.Duration) { d.off.Add(int64(by)) }

// outOfSpace is what a server answers to writes whose disk is full.
var outOfSpace = func() bson.Raw {
	doc, err := bson.Marshal(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 14031}, {Key: "codeName", Value: "OutOfDiskSpace"}, {Key: "errmsg", Value: "no space left on device"}})
	if err != nil {
		panic(err) // it is constant
	}
	return doc
}()

// refuses says what the server answers to a command that needs space, while there is none; nil = it carries it out.
func (d *database) refuses(command string) bson.Raw {
	switch command {
	case "insert", "update", "delete", "findAndModify", "commitTransaction":
		if time.Now().UnixNano() < d.full.Load() {
			return outOfSpace
		}
	}
	return nil
}

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
	l := d.listen // closed while the server is down
	d.mu.Unlock()
	return l.Dial(context.Background())
}
