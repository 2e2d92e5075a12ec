package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
)

// Options configure a server. The zero value is a server in memory on a free
// port of the loopback interface.
type Options struct {
	// Addr is "host:port", or the path of a unix socket: it contains a slash and
	// ends in ".sock". Port 0 is any free one. Defaults to "127.0.0.1:0".
	Addr string
	// AllowRemote permits an Addr that other machines can reach. There is no
	// authentication.
	AllowRemote bool
	// Listener accepts the connections, in the place of Addr. The server closes it.
	Listener net.Listener
	// Path is the file that keeps the data. Empty: nothing outlives the server.
	// While one of 64 MB or more is open, the process collects its garbage at
	// 40 % (debug.SetGCPercent), unless it did so earlier still.
	Path string
	// LogBytes bounds the change log before the newest batch of writes, and so how
	// far back a change stream may resume. Defaults to 64 MB.
	LogBytes int
	// CursorBytes bounds the results that all open cursors hold in memory, and what
	// may be overwritten of a collection that they read, unless in a transaction: a
	// cursor that costs more ends with an error. Of those that nobody reads at the
	// moment, the results least recently used go first, and the oldest snapshots.
	// Defaults to 256 MB.
	CursorBytes int
	// TransactionLifetime ends transactions that stay open for longer. Defaults
	// to 60 s.
	TransactionLifetime time.Duration
	// SessionTimeout forgets sessions unused for longer, and what was remembered
	// for retries. Defaults to 30 minutes.
	SessionTimeout time.Duration
	// CursorTimeout closes cursors unused for longer. Defaults to 10 minutes.
	CursorTimeout time.Duration
	// TTLInterval is the pause between looking for documents that TTL indexes
	// let expire. Defaults to 60 s; negative never looks.
	TTLInterval time.Duration
	// Now is the clock of everything stored and reported. Defaults to the
	// system's.
	Now func() time.Time
	// Logger gets what an operator should know. Defaults to none.
	Logger *zerolog.Logger
}

// AddrError is an Addr that says nothing to listen on, or one that is not allowed.
type AddrError struct {
	Addr string
	Err  error
}

func (e *AddrError) Error() string { return fmt.Sprintf("address %q: %v", e.Addr, e.Err) }
func (e *AddrError) Unwrap() error { return e.Err }

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	opt      Options
	zl       zerolog.Logger
	store    *storage.Store
	listener net.Listener
	election bson.ObjectID
	sessions *sessions
	cursors  *cursors
	nextConn atomic.Int32

	ctx       context.Context // ends when the server closes
	close     context.CancelFunc
	closeOnce sync.Once
	closeErr  error
	work      sync.WaitGroup
	mu        sync.Mutex
	conns     map[*conn]struct{}
}

// Start opens the file, if any, and serves until Close.
func Start(opt Options) (*Server, error) {
	opt = opt.withDefaults()
	listener, err := listen(opt)
	if err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	store, err := storage.Open(storage.Options{Path: opt.Path, Now: opt.Now, LogBytes: opt.LogBytes, Logger: *opt.Logger})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded server: %w", err), listener.Close())
	}
	s := &Server{
		opt: opt, zl: *opt.Logger, store: store, listener: listener, election: newElection(opt.Now()), conns: map[*conn]struct{}{},
	}
	s.ctx, s.close = context.WithCancel(context.Background())
	s.sessions = newSessions(s)
	s.cursors = newCursors(s)
	s.work.Go(s.accept)
	s.work.Go(s.sweep)
	if opt.TTLInterval > 0 {
		s.work.Go(s.expireLoop)
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.CursorBytes = cmp.Or(o.CursorBytes, 256<<20)
	o.TransactionLifetime = cmp.Or(o.TransactionLifetime, time.Minute)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 30*time.Minute)
	o.CursorTimeout = cmp.Or(o.CursorTimeout, 10*time.Minute)
	o.TTLInterval = cmp.Or(o.TTLInterval, time.Minute)
	if o.Now == nil {
		o.Now = clock.System().Now
	}
	if o.Logger == nil {
		nop := zerolog.Nop()
		o.Logger = &nop
	}
	return o
}

func listen(opt Options) (net.Listener, error) {
	if opt.Listener != nil {
		return opt.Listener, nil
	}
	if strings.HasSuffix(opt.Addr, ".sock") && !strings.Contains(opt.Addr, "/") {
		return nil, &AddrError{opt.Addr, errors.New("the path of a socket must contain a slash, such as ./" + opt.Addr)}
	}
	if strings.Contains(opt.Addr, "/") {
		if !strings.HasSuffix(opt.Addr, ".sock") {
			return nil, &AddrError{opt.Addr, errors.New("the name of a socket must end in .sock, or drivers take it for a host")}
		}
		path, err := filepath.Abs(opt.Addr) // clients run elsewhere
		if err == nil {
			err = removeStaleSocket(path)
		}
		if err != nil {
			return nil, err
		}
		return net.Listen("unix", path)
	}
	addr, err := net.ResolveTCPAddr("tcp", opt.Addr)
	if err != nil {
		return nil, &AddrError{opt.Addr, err}
	}
	if !addr.IP.IsLoopback() {
		if !opt.AllowRemote {
			return nil, &AddrError{opt.Addr, errors.New("other machines could connect without authentication; use 127.0.0.1, or allow it with --allow-remote")}
		}
		opt.Logger.Warn().Str("addr", opt.Addr).Msg("embedded server: other machines can connect without authentication")
	}
	return net.ListenTCP("tcp", addr)
}

// removeStaleSocket removes what a killed server left, if nobody listens.
func removeStaleSocket(path string) error {
	if st, err := os.Lstat(path); err != nil || st.Mode()&os.ModeSocket == 0 {
		return nil //nolint:nilerr // nothing there, or not ours: Listen will say
	}
	if c, err := net.Dial("unix", path); err == nil {
		return errors.Join(fmt.Errorf("socket %s is in use", path), c.Close())
	}
	return os.Remove(path)
}

// Addr is where the server listens: "host:port" or a socket's path.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URI is what a driver connects with. The connection is direct: it works through
// proxies, which the address in the answer to hello does not know.
func (s *Server) URI() string {
	addr := s.Addr()
	if strings.Contains(addr, "/") {
		addr = url.QueryEscape(addr)
	}
	return "mongodb://" + addr + "/?directConnection=true"
}

// Close ends all connections, waits for the commands under way and closes the
// file. Further calls return the same.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.close()
		s.closeErr = s.listener.Close()
		s.mu.Lock()
		for c := range s.conns {
			c.hangUp()
		}
		s.mu.Unlock()
		s.sessions.abortAll()
		s.work.Wait()
		s.cursors.killIf(func(*cursor) bool { return true })
		s.closeErr = errors.Join(s.closeErr, s.store.Close())
	})
	return s.closeErr
}

func (s *Server) accept() {
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.zl.Error().Err(err).Msg("embedded server: could not accept a connection")
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond): // out of file descriptors, most likely
			}
			continue
		}
		c := newConn(s, nc)
		s.mu.Lock()
		if s.ctx.Err() != nil {
			s.mu.Unlock()
			c.hangUp()
			continue
		}
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.work.Go(func() {
			c.serve()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// every calls do from time to time until the server closes.
func (s *Server) every(pause time.Duration, do func()) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			do()
		}
	}
}

// sweep ends what was left behind: transactions, sessions, cursors.
func (s *Server) sweep() {
	s.every(time.Second, func() {
		s.sessions.sweep()
		s.cursors.sweep(s.opt.CursorTimeout)
	})
}

// Compact rewrites the file of a server that is not running without the space
// that deleted documents left, and returns its sizes.
func Compact(path string) (before, after int64, err error) { return storage.Compact(path) }

// Validate opens the file of a server that is not running; it returns how many
// documents there are and what is wrong with them or their indexes.
func Validate(ctx context.Context, path string) (documents int, problems []string, err error) {
	return storage.ValidateFile(ctx, path)
}
