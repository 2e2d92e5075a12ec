package httpcall

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxied is a proxy that answers everything itself, redirecting / to where it is told.
func proxied(t *testing.T, to string) (Reach, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Host)
		if to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return Reach{Proxy: http.ProxyURL(u), lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host == "inside.example" {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("169.254.169.254")}, nil
		}
		return nil, errors.New("only the proxy knows it")
	}}, &asked
}

func TestAForbiddenAddressIsOneHoweverItIsWritten(t *testing.T) {
	for _, host := range []string{
		"169.254.169.254", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0XA9FEA9FE", "025177524776", "0251.0376.0251.0376",
		"169.254.43518", "169.16689662", "0xa9.254.0xa9.254", "[fe80::1]", "[fe80::1%25eth0]", "[::ffff:169.254.169.254]", "[::a9fe:a9fe]",
		"[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::169.254.169.254]", "[2002:a9fe:a9fe::1]", "[::ffff:0:169.254.169.254]",
		"[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "[64:ff9b::100.100.100.200]",
	} {
		u, err := url.Parse("http://" + host + "/")
		require.NoError(t, err, host)
		require.ErrorIs(t, Reach{}.checkHost(u.Hostname()), ErrForbiddenAddress, host)
		require.NoError(t, Reach{AllowLinkLocal: true}.checkHost(u.Hostname()), host)
	}
	for _, host := range []string{
		"example.org", "127.0.0.1", "10.0.0.1", "2130706433", "[::1]", "[::]", "[64:ff9b::8.8.8.8]", "[::ffff:0:8.8.8.8]", "[fd00:ec3::23]", "169.254.169.254.example.org",
		"0xa9fea9fe.org", "1.2.3.4.5", "4294967296", "0b1", "1_0", "a9fea9fe",
	} {
		u, err := url.Parse("http://" + host + "/")
		require.NoError(t, err, host)
		require.NoError(t, Reach{}.checkHost(u.Hostname()), host)
	}
}

func TestAProxyIsNotAskedForAForbiddenAddress(t *testing.T) {
	for _, to := range []string{"http://169.254.169.254/", "http://2852039166/", "http://[64:ff9b::a9fe:a9fe]/", "http://inside.example/", "https://inside.example/"} {
		r, asked := proxied(t, "")
		require.ErrorIs(t, get(t, r, to), ErrForbiddenAddress, to)
		require.Empty(t, *asked, to)

		r, asked = proxied(t, to)
		require.ErrorIs(t, get(t, r, "http://outside.example/"), ErrForbiddenAddress, "a redirect to %s", to)
		require.Equal(t, []string{"outside.example"}, *asked)

		r, asked = proxied(t, "")
		r.AllowLinkLocal = true
		if to[:5] == "http:" {
			require.NoError(t, get(t, r, to))
			require.Len(t, *asked, 1)
		}
	}
}

func TestLettersThatBecomeDigitsOnTheWayAreRefusedBehindAProxy(t *testing.T) {
	r, asked := proxied(t, "")
	for _, to := range []string{"https://１６９.254.169.254/", "https://169。254。169。254/"} {
		require.ErrorContains(t, get(t, r, to), "with a proxy, host names must be ASCII")
	}
	require.Empty(t, *asked)
}

// A plain call through a proxy has the header Host in its request line: that is who answers.
func TestTheHeaderHostIsNoWayAroundBehindAProxy(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "0xa9fea9fe:80", "inside.example", "a@169.254.169.254", "x/y", ":80"} {
		for _, list := range []*Allow{nil, allow(t, "outside.example")} {
			r, asked := proxied(t, "")
			r.Allow = list
			transport := r.transport()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://outside.example/", nil)
			require.NoError(t, err)
			req.Host = host
			res, err := transport.RoundTrip(req)
			if err == nil {
				require.NoError(t, res.Body.Close())
			}
			require.Error(t, err, host)
			require.Empty(t, *asked, host)
			transport.CloseIdleConnections()
		}
	}
	r, asked := proxied(t, "")
	r.Allow = allow(t, "outside.example")
	transport := r.transport()
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://outside.example/", nil)
	require.NoError(t, err)
	req.Host = "another.example"
	_, err = transport.RoundTrip(req) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, ErrNotAllowed)
	require.Empty(t, *asked)
}

// A server that is asked directly may be a proxy, too.
func TestTheHeaderHostIsNoWayAroundWithoutAProxy(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.Host) }))
	defer s.Close()
	known, _ := proxied(t, "")
	call := func(host string, list *Allow) error {
		c := New(Reach{Allow: list, lookup: known.lookup}, nil, time.Now)
		defer c.Close()
		_, err := c.Do(t.Context(), Call{Method: http.MethodGet, URL: s.URL, Timeout: time.Hour, Headers: map[string]string{"Host": host}})
		return err
	}
	list := allow(t, "127.0.0.1", "inside.example", "virtual.example")
	for _, host := range []string{"169.254.169.254", "0xa9fea9fe:80", "inside.example"} {
		require.ErrorIs(t, call(host, nil), ErrForbiddenAddress, host)
	}
	require.ErrorIs(t, call("inside.example", list), ErrForbiddenAddress)
	require.ErrorIs(t, call("another.example", list), ErrNotAllowed)
	for _, host := range []string{"a@169.254.169.254", "x/y", ":80", "１６９.254.169.254"} {
		require.ErrorContains(t, call(host, nil), "names no host", host)
	}
	require.Empty(t, asked)
	require.NoError(t, call("virtual.example:8080", list))
	require.NoError(t, call("another.example", nil))
	require.Equal(t, []string{"virtual.example:8080", "another.example"}, asked)
}

func TestAProxyIsNoDirectTargetUnlessTheListNamesIt(t *testing.T) {
	r, asked := proxied(t, "")
	u, err := r.Proxy(nil)
	require.NoError(t, err)
	r.Proxy = func(req *http.Request) (*url.URL, error) {
		if req.URL.Host == u.Host { // as with the proxies of the environment on this machine
			return nil, nil
		}
		return u, nil
	}
	r.Allow = allow(t, "outside.example")
	transport := r.transport()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range 2 {
		_, err = client.Get(u.String()) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, ErrNotAllowed)
		res, err := client.Get("http://outside.example/")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	}
	require.Equal(t, []string{"outside.example", "outside.example"}, *asked)
	r.Allow = allow(t, "outside.example", "127.0.0.1")
	require.NoError(t, get(t, r, u.String()))
}

// A tunnel leads to the header Host, and the body of the call through it.
func TestNoCallOpensATunnel(t *testing.T) {
	r, asked := proxied(t, "")
	u, err := r.Proxy(nil)
	require.NoError(t, err)
	for _, method := range []string{http.MethodConnect, http.MethodTrace} {
		require.ErrorContains(t, ValidMethod("args.method", method), "args.method is "+method)
		c := New(Reach{}, nil, time.Now)
		_, err := c.Do(t.Context(), Call{Method: method, URL: u.String(), Body: "GET / HTTP/1.1", Timeout: time.Hour, Headers: map[string]string{"Host": "169.254.169.254:80"}})
		c.Close()
		var verdict *VerdictError
		require.ErrorAs(t, err, &verdict)
		require.True(t, verdict.Fatal)
		require.ErrorContains(t, err, "method is "+method)
	}
	require.Empty(t, *asked)
}
