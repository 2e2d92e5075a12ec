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

	"github.com/mscheduler/mscheduler/internal/input"
)

// ErrNotAllowed is what a call of a host that is not on the allow list ends with, a redirect
// to one too.
var ErrNotAllowed = errors.New("is not on this worker's list of what may be called (--http-allow; Allow of consumer.CallbackConfig)")

// Allow is a list of hosts and networks. A host is allowed by its name, wherever that leads,
// or by the address that its name resolves to.
type Allow struct {
	names map[string]bool // example.org, and .example.org for all below it
	nets  []netip.Prefix
}

// ParseAllow reads entries such as example.org, *.example.org, 10.0.0.0/8 and 192.0.2.7;
// none at all is nil, which allows everything. field names them in errors.
func ParseAllow(field string, entries []string) (*Allow, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	a := &Allow{names: map[string]bool{}}
	for _, entry := range entries {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if p, err := netip.ParsePrefix(entry); err == nil {
			a.nets = append(a.nets, p.Masked())
			continue
		}
		if addr, err := netip.ParseAddr(entry); err == nil {
			a.nets = append(a.nets, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		name := strings.TrimPrefix(entry, "*")
		if strings.Trim(name, ".") == "" || strings.ContainsAny(name, "*/:@ ") || name != entry && name[0] != '.' {
			return nil, input.Invalid(field, "has %q; want a host, *.host, an address or a network such as 10.0.0.0/8", entry)
		}
		a.names[name] = true
	}
	return a, nil
}

// named says whether the host is allowed by what it is called.
func (a *Allow) named(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, ok := hostAddr(host); ok {
		return a.at(addr)
	}
	if a.names[host] {
		return true
	}
	for i := range len(host) {
		if host[i] == '.' && a.names[host[i:]] {
			return true
		}
	}
	return false
}

func (a *Allow) at(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, n := range a.nets {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

type (
	proxyFunc = func(*http.Request) (*url.URL, error)
	dialFunc  = func(ctx context.Context, network, address string) (net.Conn, error)
)

// guard makes a proxy and a dialer that keep to the list. Each connection is judged by the
// host that was asked for and then by the address; what goes through a proxy, which resolves
// names itself, by the host alone.
func (a *Allow) guard(proxy proxyFunc, dialer *net.Dialer) (proxyFunc, dialFunc) {
	var proxies sync.Map // host:port, which may be reached whatever the list says
	strict := *dialer
	strict.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if ap, err := netip.ParseAddrPort(address); err != nil || !a.at(ap.Addr()) {
			return fmt.Errorf("%s %w", address, ErrNotAllowed)
		}
		if dialer.ControlContext == nil {
			return nil
		}
		return dialer.ControlContext(ctx, network, address, c)
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		_, isProxy := proxies.Load(address)
		switch {
		case err != nil:
			return nil, err
		case isProxy, a.named(host):
			return dialer.DialContext(ctx, network, address)
		case len(a.nets) == 0:
			return nil, fmt.Errorf("%s %w", host, ErrNotAllowed)
		default:
			return strict.DialContext(ctx, network, address)
		}
	}
	if proxy == nil {
		return nil, dial
	}
	return func(r *http.Request) (*url.URL, error) {
		u, err := proxy(r)
		if u == nil || err != nil {
			return u, err
		}
		hosts, err := askedOf(r)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			if !a.named(host) {
				return nil, fmt.Errorf("%s %w", host, ErrNotAllowed)
			}
		}
		proxies.Store(net.JoinHostPort(u.Hostname(), portOf(u)), true)
		return u, nil
	}, dial
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
