package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	return strings.TrimSuffix(w.callbackURL, "/") + periodic.CallbackPath, nil
}

// takeCallbacks listens on --callback-addr, if there is one, until it is stopped: then what
// is under way is answered first.
func (a *app) takeCallbacks(conn *connection, w *workFlags) (*callbackTaker, error) {
	base, err := w.callbackBase()
	if err != nil || w.callbackAddr == "" {
		return &callbackTaker{url: base, stop: func() {}}, err
	}
	p, err := producer.New(producer.Config{Database: conn.db, Prefix: conn.prefix, Logger: a.logger()})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", w.callbackAddr) //nolint:noctx // it takes no time
	if err != nil {
		return nil, usage("--callback-addr: %v", err)
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
