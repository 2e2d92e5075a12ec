package bench

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// distance is a proxy that makes a server seem farther away.
type distance struct {
	*proxy.Proxy
	uri string // through the proxy, with the user and the options of the server's
}

// distant starts a proxy that adds rtt to each round trip. The connection string must name
// one host without TLS: the proxy reads the commands that it delays.
func distant(uri string, rtt time.Duration) (*distance, error) {
	u, err := oneHost(uri)
	if err != nil {
		return nil, err
	}
	p, err := proxy.Start(uri)
	if err != nil {
		return nil, fmt.Errorf("starting a distant server: %w", err)
	}
	p.Delay(rtt)
	through, err := url.Parse(p.URI())
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("starting a distant server: %w", err)
	}
	q := u.Query()
	q.Del("replicaSet")
	q.Set("directConnection", "true")
	u.Host, u.RawQuery = through.Host, q.Encode()
	return &distance{p, u.String()}, nil
}

// oneHost checks that a proxy can stand before the server of the connection string.
func oneHost(uri string) (*url.URL, error) {
	u, err := url.Parse(uri)
	if err != nil { // its text has the connection string, and so perhaps a password
		return nil, input.Invalid("--rtt", "needs a connection string that names one host")
	}
	q := u.Query()
	if u.Scheme != "mongodb" || strings.Contains(u.Host, ",") || q.Get("tls") == "true" || q.Get("ssl") == "true" {
		return nil, input.Invalid("--rtt", "needs a connection string mongodb://HOST that names one host, without TLS")
	}
	return u, nil
}
