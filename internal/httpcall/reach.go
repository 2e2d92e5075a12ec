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
	"sync"
	"syscall"
	"time"
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

type (
	proxyFunc  = func(*http.Request) (*url.URL, error)
	lookupFunc = func(ctx context.Context, network, host string) ([]netip.Addr, error)
)

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

// transport makes the connections of one kind of calls in a process. Each connection is judged by
// its host's name and then by its address.
func (r Reach) transport() *http.Transport {
	var proxies sync.Map // host:port that the allow list need not have
	return &http.Transport{
		Proxy: r.guardProxy(&proxies),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			_, isProxy := proxies.Load(address)
			named := isProxy || r.Allow.named(host)
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

// guardProxy returns the proxy of requests to hosts that may be reached. The dialer sees only the
// proxy's address, so the host is judged here, for each request and each redirect.
func (r Reach) guardProxy(proxies *sync.Map) proxyFunc {
	if r.Proxy == nil || r.AllowLinkLocal && r.Allow == nil {
		return r.Proxy
	}
	return func(req *http.Request) (*url.URL, error) {
		u, err := r.Proxy(req)
		if u == nil || err != nil {
			return u, err
		}
		hosts, err := requestedHosts(req)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			if err := r.checkName(req.Context(), host); err != nil {
				return nil, err
			}
		}
		proxies.Store(net.JoinHostPort(u.Hostname(), portOf(u)), true)
		return u, nil
	}
}

// requestedHosts returns the hosts that a proxy may take the request to be for: the URL's, and that
// of the header Host, which stands in the request line of a plain HTTP call.
func requestedHosts(r *http.Request) ([]string, error) {
	if strings.IndexFunc(r.URL.Host+r.Host, func(c rune) bool { return c > 0x7f }) >= 0 {
		// A transport maps some letters to digits and dots.
		return nil, errors.New("with a proxy, host names must be ASCII; write other names in their xn-- form")
	}
	hosts := []string{r.URL.Hostname()}
	if r.Host == "" || r.Host == r.URL.Host {
		return hosts, nil
	}
	u, err := url.Parse("http://" + r.Host + "/")
	if err != nil || u.User != nil || u.Host != r.Host || u.Hostname() == "" {
		return nil, errors.New("the header Host names no host")
	}
	return append(hosts, u.Hostname()), nil
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

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	case strings.HasPrefix(u.Scheme, "socks5"):
		return "1080"
	default:
		return "80"
	}
}
