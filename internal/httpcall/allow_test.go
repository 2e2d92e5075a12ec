package httpcall

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

// get calls the URL within what the list allows.
func get(t *testing.T, r Reach, to string) error {
	t.Helper()
	transport := r.transport()
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	require.NoError(t, err)
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func allow(t *testing.T, entries ...string) *Allow {
	t.Helper()
	a, err := ParseAllow("allow", entries)
	require.NoError(t, err)
	return a
}

func TestOnlyWhatIsOnTheListIsCalled(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	defer s.Close()
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	require.NoError(t, get(t, Reach{}, s.URL), "without a list")
	require.NoError(t, get(t, Reach{Allow: allow(t, "127.0.0.0/8")}, s.URL))
	require.NoError(t, get(t, Reach{Allow: allow(t, "127.0.0.1", "::1")}, byName), "by the address of its name")
	require.NoError(t, get(t, Reach{Allow: allow(t, "LocalHost")}, byName))
	require.ErrorIs(t, get(t, Reach{Allow: allow(t, "localhost")}, s.URL), ErrNotAllowed)
	require.ErrorIs(t, get(t, Reach{Allow: allow(t, "10.0.0.0/8")}, byName), ErrNotAllowed)
	require.ErrorIs(t, get(t, Reach{Allow: allow(t, "localhost")}, byName+"?to="+url.QueryEscape(s.URL)), ErrNotAllowed, "nor by a redirect")
}

func TestBehindAProxyTheNameDecides(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	r := Reach{Allow: allow(t, "*.example.org"), Proxy: http.ProxyURL(u)}
	require.NoError(t, get(t, r, "http://a.example.org/"))
	require.ErrorIs(t, get(t, r, "http://example.com/"), ErrNotAllowed)
}

func TestAnAllowedSuffixIsNotItsParent(t *testing.T) {
	a := allow(t, "*.example.org", "exact.net")
	for host, want := range map[string]bool{
		"a.example.org": true, "b.A.example.org.": true, "example.org": false, "badexample.org": false,
		"exact.net": true, "a.exact.net": false, "127.0.0.1": false,
	} {
		require.Equal(t, want, a.named(host), host)
	}
}

func TestTheListDoesNotAllowMetadataAddresses(t *testing.T) {
	require.ErrorIs(t, get(t, Reach{Allow: allow(t, "169.254.0.0/16")}, "http://169.254.169.254/"), ErrForbiddenAddress)
}

func TestEntriesThatAreNoneAreRefused(t *testing.T) {
	for _, entry := range []string{"", "*", "a*b", "*example.org", "http://h", "h:80", "10.0.0.0/33"} {
		_, err := ParseAllow("allow", []string{entry})
		require.ErrorIs(t, err, model.ErrInvalid, entry)
	}
}
