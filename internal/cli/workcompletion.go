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

	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/periodic"
)

// completionTaker is the part of a worker that accepts the completions of periodic HTTP targets.
type completionTaker struct {
	url  string // what targets call, without the token; "" = nothing
	stop func()
}

// completionBase checks --completion-url.
func (w *workFlags) completionBase() (string, error) {
	if w.completionURL == "" {
		return "", nil
	}
	u, err := url.Parse(w.completionURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", usage("--completion-url is %q; want an http or https URL without query, such as https://tasks.example.org", w.completionURL)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && a.Unmap().IsUnspecified() {
		return "", usage("--completion-url is %q, an address that no target can call; want a name or address of this machine", w.completionURL)
	}
	return strings.TrimSuffix(w.completionURL, "/") + httptarget.CompletionPath, nil
}

// listen listens on --completion-addr. If that is every address of the machine, targets need
// --completion-url: they cannot call such an address.
func (w *workFlags) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", w.completionAddr) //nolint:noctx // it takes no time
	if err != nil {
		return nil, usage("--completion-addr: %v", err)
	}
	if err := w.reachable(listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// reachable says whether targets know what to call.
func (w *workFlags) reachable(addr net.Addr) error {
	if at, ok := addr.(*net.TCPAddr); ok && at.IP.IsUnspecified() && w.completionURL == "" {
		return usage("--completion-addr is %q, which means every address of this machine; set --completion-url to the one that targets call, such as https://tasks.example.org", w.completionAddr)
	}
	return nil
}

// takeCompletions listens on --completion-addr, if it is set, until stop, which first answers the
// requests in progress.
func (a *app) takeCompletions(conn *connection, w *workFlags) (*completionTaker, error) {
	base, err := w.completionBase()
	if err != nil || w.completionAddr == "" {
		return &completionTaker{url: base, stop: func() {}}, err
	}
	listener, err := w.listen()
	if err != nil {
		return nil, err
	}
	if base == "" {
		base = "http://" + listener.Addr().String() + httptarget.CompletionPath
	}
	server := limited(periodic.CompletionHandler(conn.producer))
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	if !w.events {
		a.say("accepts completions at %s; targets call %s", listener.Addr(), base)
	}
	return &completionTaker{url: base, stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := server.Shutdown(ctx)
		if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("accepting completions: %w", serveErr))
		}
		if err != nil {
			a.say("mscheduler: %v", err)
		}
	}}, nil
}
