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
	"time"
)

// What goes through a proxy: the dialer sees the proxy's address only, so the host that is
// asked for is judged before. A transport asks for the proxy of each request, those of
// redirects too.

type lookupFunc = func(ctx context.Context, network, host string) ([]netip.Addr, error)

// lookupTime is what a name may take to resolve here, before a proxy resolves it itself.
const lookupTime = 2 * time.Second

// guardProxy is the proxy of a request whose host may be reached.
func (r Reach) guardProxy() proxyFunc {
	if r.Proxy == nil || r.AllowLinkLocal {
		return r.Proxy
	}
	return func(req *http.Request) (*url.URL, error) {
		u, err := r.Proxy(req)
		if u == nil || err != nil {
			return u, err
		}
		hosts, err := askedOf(req)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			if err := r.checkName(req.Context(), host); err != nil {
				return nil, err
			}
		}
		return u, nil
	}
}

// askedOf are the hosts that a proxy may take the request to be for: the URL's, and that of
// the header Host, which stands in the request line of a plain http call.
func askedOf(r *http.Request) ([]string, error) {
	hosts := []string{r.URL.Hostname()}
	if strings.IndexFunc(r.URL.Host+r.Host, func(c rune) bool { return c > 0x7f }) >= 0 {
		// A transport turns some letters into digits and dots on its way.
		return nil, errors.New("behind a proxy a host is written in ASCII: xn--... for what is not")
	}
	if r.Host == "" || r.Host == r.URL.Host {
		return hosts, nil
	}
	u, err := url.Parse("http://" + r.Host + "/")
	if err != nil || u.User != nil || u.Host != r.Host || u.Hostname() == "" {
		return nil, errors.New("the header Host names no host")
	}
	return append(hosts, u.Hostname()), nil
}

// checkName refuses a host that is a forbidden address, or resolves to one here. A name that
// does not resolve here is the proxy's to judge: behind a proxy that is often so.
func (r Reach) checkName(ctx context.Context, host string) error {
	if err := r.checkHost(host); err != nil {
		return err
	}
	if _, ok := hostAddr(host); ok {
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
