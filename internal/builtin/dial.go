package builtin

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

// errForbiddenAddress is what a connection to an address that no task may reach ends
// with. It is checked after the name was resolved, for redirects too.
var errForbiddenAddress = errors.New("is a link-local or cloud metadata address, which this worker does not call (an operator can allow it)")

// metadata addresses of clouds that are not link-local.
var metadataAddrs = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS, IPv6
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba
}

func forbiddenAddr(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || metadataAddrs[a]
}

// transport makes the connections of all http tasks of a process.
func transport(o HTTPOptions) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !o.AllowLinkLocal {
		dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if ap, err := netip.ParseAddrPort(address); err == nil && forbiddenAddr(ap.Addr()) {
				return fmt.Errorf("%s %w", ap.Addr(), errForbiddenAddress)
			}
			return nil
		}
	}
	return &http.Transport{
		Proxy:                 o.Proxy,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          512,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// forbiddenHost finds a forbidden address written out in the URL: behind a proxy the
// dialer sees only the proxy.
func forbiddenHost(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && forbiddenAddr(a)
}
