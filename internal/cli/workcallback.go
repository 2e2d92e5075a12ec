package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/producer"
)

// callbackTaker is the part of a worker that takes the callbacks of periodic HTTP targets.
type callbackTaker struct {
	url  string // what targets are told, without the token; "" = nothing
	stop func()
}

// callbackBase checks --callback-url.
func (w *workFlags) callbackBase() (string, error) {
	if w.callbackURL == "" {
		return "", nil
	}
	u, err := url.Parse(w.callbackURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", usage("--callback-url is %q; want an http or https URL without query, such as https://tasks.example.org", w.callbackURL)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && a.Unmap().IsUnspecified() {
		return "", usage("--callback-url is %q; no target can call that address: want the name by which this machine is reached", w.callbackURL)
	}
	return strings.TrimSuffix(w.callbackURL, "/") + periodic.CallbackPath, nil
}

// listen listens on --callback-addr. Where that is every address of the machine, it is no
// address that targets could be told to call.
func (w *workFlags) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", w.callbackAddr) //nolint:noctx // it takes no time
	if err != nil {
		return nil, usage("--callback-addr: %v", err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() && w.callbackURL == "" {
		return nil, errors.Join(
			usage("--callback-addr is %q, every address of this machine: say by --callback-url which one targets call, such as https://tasks.example.org", w.callbackAddr),
			listener.Close())
	}
	return listener, nil
}

// takeCallbacks listens on --callback-addr, if there is one, until it is stopped: then what
// is under way is answered first.
func (a *app) takeCallbacks(conn *connection, w *workFlags) (*callbackTaker, error) {
	base, err := w.callbackBase()
	if err != nil || w.callbackAddr == "" {
		return &callbackTaker{url: base, stop: func() {}}, err
	}
	listener, err := w.listen()
	if err != nil {
		return nil, err
	}
	p, err := producer.New(producer.Config{Database: conn.db, Prefix: conn.prefix, Logger: a.logger()})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if base == "" {
		base = "http://" + listener.Addr().String() + periodic.CallbackPath
	}
	server := &http.Server{
		Handler: periodic.CallbackHandler(p), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	if !w.events {
		a.say("takes callbacks at %s; targets are told %s", listener.Addr(), base)
	}
	return &callbackTaker{url: base, stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := server.Shutdown(ctx)
		if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("taking callbacks: %w", serveErr))
		}
		if err = errors.Join(err, p.Close(ctx)); err != nil {
			a.say("mscheduler: %v", err)
		}
	}}, nil
}
