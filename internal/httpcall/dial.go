package httpcall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// ErrForbiddenAddress is what a connection to an address that no call may reach ends
// with. It is checked after the name was resolved, for redirects too.
var ErrForbiddenAddress = errors.New("is a link-local or cloud metadata address, which this worker does not call (an operator can allow it)")

// Refused says whether a call was not made because of where it would have gone: no retry
// mends that.
func Refused(err error) bool {
	return errors.Is(err, ErrForbiddenAddress) || errors.Is(err, ErrNotAllowed)
}

// Reach says where calls may go.
type Reach struct {
	// AllowLinkLocal lets calls reach link-local and cloud metadata addresses.
	AllowLinkLocal bool
	// Allow is all that calls may reach; nil = everything else. Link-local addresses are not
	// allowed by it.
	Allow *Allow
	// Proxy for a request, as in [http.Transport]. nil = none.
	Proxy func(*http.Request) (*url.URL, error)

	lookup lookupFunc // nil = the machine's resolver; for tests
}

// Transport makes the connections of all calls of one kind in a process.
func (r Reach) Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !r.AllowLinkLocal {
		dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if ap, err := netip.ParseAddrPort(address); err == nil && forbiddenAddr(ap.Addr()) {
				return fmt.Errorf("%s %w", ap.Addr(), ErrForbiddenAddress)
			}
			return nil
		}
	}
	proxy, dial := r.guardProxy(), dialer.DialContext
	if r.Allow != nil {
		proxy, dial = r.Allow.guard(proxy, dialer)
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           dial,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          512,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// Check finds a forbidden address that is written out in the URL, however it is written.
// The error wraps [ErrForbiddenAddress].
func (r Reach) Check(u *url.URL) error { return r.checkHost(u.Hostname()) }

func (r Reach) checkHost(host string) error {
	if a, ok := hostAddr(host); !r.AllowLinkLocal && ok && forbiddenAddr(a) {
		return fmt.Errorf("%s %w", host, ErrForbiddenAddress)
	}
	return nil
}
