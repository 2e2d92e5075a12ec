package httpcall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Why a call is not made: no retry helps. Both are checked after the name was resolved, and for
// redirects, too.
var (
	ErrForbiddenAddress = errors.New("is a link-local or cloud metadata address, which this worker does not call (--allow-link-local; AllowLinkLocal of consumer.CallbackConfig)")
	ErrNotAllowed       = errors.New("is not on this worker's allow list (--http-allow; Allow of consumer.CallbackConfig)")
)

func refused(err error) bool {
	return errors.Is(err, ErrForbiddenAddress) || errors.Is(err, ErrNotAllowed)
}

type lookupFunc = func(ctx context.Context, network, host string) ([]netip.Addr, error)

// Reach says where calls may go.
type Reach struct {
	// AllowLinkLocal lets calls reach link-local and cloud metadata addresses.
	AllowLinkLocal bool
	// Allow is all that calls may reach; nil allows everything. It never allows link-local
	// addresses.
	Allow *Allow
	// Proxy for a request, as in [http.Transport]; nil for none.
	Proxy func(*http.Request) (*url.URL, error)

	lookup lookupFunc // nil = the machine's resolver; for tests
}

// transport carries the calls of one kind in a process. Each is judged by its header Host and, through a proxy, by
// its host's name. Each connection is judged by its host's name and then by its address.
type transport struct {
	reach           Reach
	direct, proxied *http.Transport // apart: the allow list need not have the proxies, and only the dialer knows addresses
}

func (r Reach) transport() *transport {
	t := &transport{reach: r, direct: r.connections(r.Allow), proxied: r.connections(nil)}
	t.proxied.Proxy = func(req *http.Request) (*url.URL, error) {
		u, err := r.Proxy(req)
		if u == nil && err == nil { // its dialer has no list
			err = errors.New("the proxy settings have changed during the call")
		}
		return u, err
	}
	return t
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	by, err := t.route(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // nothing was sent
		}
		return nil, err
	}
	return by.RoundTrip(req)
}

// route judges a request, a redirected one too, and says whether it goes through a proxy.
func (t *transport) route(req *http.Request) (*http.Transport, error) {
	if err := t.reach.checkHeader(req); err != nil {
		return nil, err
	}
	if t.reach.Proxy == nil {
		return t.direct, nil
	}
	switch u, err := t.reach.Proxy(req); {
	case err != nil:
		return nil, err
	case u == nil:
		return t.direct, nil
	default:
		return t.proxied, t.reach.checkProxied(req)
	}
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// connections makes connections to what the list allows.
func (r Reach) connections(list *Allow) *http.Transport {
	r.Allow = list
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			named := r.Allow.named(host)
			if !named && len(r.Allow.nets) == 0 {
				return nil, fmt.Errorf("%s %w", host, ErrNotAllowed)
			}
			dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
			dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
				at, err := netip.ParseAddrPort(address)
				if err == nil {
					err = r.checkAddr(at.Addr(), named)
				}
				return err
			}
			return dialer.DialContext(ctx, network, address)
		},
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}, // or calls go on to a host that is gone
		MaxIdleConns:          512,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// checkAddr judges an address before it is connected to; named says that the host's name is
// allowed.
func (r Reach) checkAddr(a netip.Addr, named bool) error {
	switch {
	case !r.AllowLinkLocal && forbiddenAddr(a):
		return fmt.Errorf("%s %w", a, ErrForbiddenAddress)
	case !named && !r.Allow.at(a):
		return fmt.Errorf("%s %w", a, ErrNotAllowed)
	default:
		return nil
	}
}

// checkHost refuses a host that is a forbidden address, in whatever notation.
func (r Reach) checkHost(host string) error {
	if a, ok := hostAddr(host); !r.AllowLinkLocal && ok && forbiddenAddr(a) {
		return fmt.Errorf("%s %w", host, ErrForbiddenAddress)
	}
	return nil
}

// everything reports whether calls may reach whatever they name.
func (r Reach) everything() bool { return r.AllowLinkLocal && r.Allow == nil }

// checkProxied judges a request that goes through a proxy by its host's name: the dialer sees only the proxy's address.
func (r Reach) checkProxied(req *http.Request) error {
	if r.everything() {
		return nil
	}
	if !isASCII(req.URL.Host) { // a transport maps some letters to digits and dots
		return errors.New("with a proxy, host names must be ASCII; write other names in their xn-- form")
	}
	return r.checkName(req.Context(), req.URL.Hostname())
}

// checkHeader judges the header Host as [Reach.checkProxied] judges the host of the URL. A proxy may take the request
// to be for it, also a proxy that the process does not know as one.
func (r Reach) checkHeader(req *http.Request) error {
	if req.Host == "" || req.Host == req.URL.Host || r.everything() {
		return nil
	}
	u, err := url.Parse("http://" + req.Host + "/")
	if err != nil || u.User != nil || u.Host != req.Host || u.Hostname() == "" || !isASCII(req.Host) {
		return errors.New("the header Host names no host; want one in ASCII, such as example.org or example.org:8080")
	}
	if err := r.checkName(req.Context(), u.Hostname()); err != nil {
		return fmt.Errorf("the header Host: %w", err)
	}
	return nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII })
}

// lookupTime bounds how long a name may take to resolve here, before a proxy resolves it itself.
const lookupTime = 2 * time.Second

// checkName judges a host by its name alone. It refuses one that is a forbidden address, or
// resolves to one here. A name that does not resolve here is left to the proxy: behind a proxy
// that is common.
func (r Reach) checkName(ctx context.Context, host string) error {
	if err := r.checkHost(host); err != nil {
		return err
	}
	if !r.Allow.named(host) {
		return fmt.Errorf("%s %w", host, ErrNotAllowed)
	}
	if _, isAddr := hostAddr(host); isAddr || r.AllowLinkLocal {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	lookup := r.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	addrs, err := lookup(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if forbiddenAddr(a) {
			return fmt.Errorf("%s (%s) %w", host, a, ErrForbiddenAddress)
		}
	}
	return nil
}
