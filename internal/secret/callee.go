package secret

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Callee is what decides who gets a call: its URL and its header Host, by which a server that has several
// sites, or a proxy, chooses one.
type Callee struct {
	URL   string
	hosts []string // of the header, however its name is spelled
}

// CalleeOf returns that of a call with these headers.
func CalleeOf(url string, headers map[string]string) Callee {
	c := Callee{URL: url}
	for name, value := range headers {
		c.addHost(name, value)
	}
	return c
}

func (c *Callee) addHost(name, value string) {
	if http.CanonicalHeaderKey(name) == "Host" {
		c.hosts = append(c.hosts, value)
	}
}

// hostsIn are the values of the header Host in arguments.
func hostsIn(args bson.D) []string {
	var c Callee
	edit(args, func(name, v string) string {
		c.addHost(name, v)
		return v
	}, "headers", "*")
	return c.hosts
}

// Elsewhere says whether the call has another scheme, host or port than the stored one, in its URL or in its
// header Host; "" = it has not.
func (c Callee) Elsewhere(stored Callee) string {
	a, err := c.origin()
	if b, err2 := stored.origin(); err == nil && err2 == nil && slices.Equal(a, b) {
		return ""
	}
	return "a new host"
}

// KeepURL returns the URL with its hidden parts as they are stored, unless the header Host has changed.
func (c Callee) KeepURL(stored Callee) string {
	if (Callee{stored.URL, c.hosts}).Elsewhere(stored) != "" {
		return c.URL
	}
	return KeepURL(c.URL, stored.URL)
}

// origin is the scheme, the host and the port of the URL, as every spelling has them, and the hosts that the
// call names in their place.
func (c Callee) origin() ([]string, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	host, port := strings.ToLower(u.Host), u.Port()
	byDefault := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" {
		port = byDefault
	}
	at := net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	named := []string{}
	for _, h := range c.hosts {
		h = strings.ToLower(h)
		if h != "" && h != host && h != at && net.JoinHostPort(h, byDefault) != at {
			named = append(named, h)
		}
	}
	slices.Sort(named)
	return append([]string{u.Scheme, at}, named...), nil
}
