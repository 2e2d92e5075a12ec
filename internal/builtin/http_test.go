package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/httpcall"
)

var testCaller = caller{
	workerID: "w1", taskID: "-/http/a b%é", executionID: "-/http/a@1@x", token: "0001-0002", lifeID: "-/http/a@1", attempt: 3,
}

func target(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func callArgs(t *testing.T, args string) (HTTPResult, error) {
	t.Helper()
	return callWith(t, t.Context(), args, HTTPOptions{BodyLimit: 32})
}

func callWith(t *testing.T, ctx context.Context, args string, o HTTPOptions) (HTTPResult, error) {
	t.Helper()
	var a HTTPArgs
	if err := decode(json.RawMessage(args), &a, false); err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	h := newHTTPHandler(o, nil)
	t.Cleanup(h.Close)
	call := a.call()
	call.Worker, call.Keep = testCaller.header(), h.limit
	out, err := h.Do(ctx, call)
	return out, verdict(err)
}

func isFatal(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "fatal: ") }

func TestAnswerIsTheResult(t *testing.T) {
	url := target(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Set-Cookie", "secret=1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	})
	got, err := callArgs(t, `{"url": "`+url+`"}`)
	require.NoError(t, err)
	require.Equal(t, HTTPResult{Status: 201, Body: "done", Headers: map[string]string{"Content-Type": "text/plain"}}, got)
}

func TestRequestIsWhatTheArgumentsSay(t *testing.T) {
	type seen struct {
		Method, Body, Type, Own, Host string
	}
	var last seen
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last = seen{r.Method, string(body), r.Header.Get("Content-Type"), r.Header.Get("X-Own"), r.Host}
	})
	host := strings.TrimPrefix(url, "http://")
	for name, c := range map[string]struct {
		args string
		want seen
	}{
		"GET by default":     {`{"url":"` + url + `"}`, seen{Method: "GET", Host: host}},
		"POST with a body":   {`{"url":"` + url + `","body":"plain"}`, seen{Method: "POST", Body: "plain", Host: host}},
		"JSON body":          {`{"url":"` + url + `","body":{"a":[1]}}`, seen{Method: "POST", Body: `{"a":[1]}`, Type: "application/json", Host: host}},
		"method and headers": {`{"url":"` + url + `","method":"PUT","headers":{"X-Own":"1","Host":"example.org"},"body":1}`, seen{Method: "PUT", Body: "1", Type: "application/json", Own: "1", Host: "example.org"}},
		"own content type":   {`{"url":"` + url + `","headers":{"content-type":"text/x"},"body":{}}`, seen{Method: "POST", Body: "{}", Type: "text/x", Host: host}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := callArgs(t, c.args)
			require.NoError(t, err)
			require.Equal(t, c.want, last)
		})
	}
}

func TestRequestSaysWhoCalls(t *testing.T) {
	var h http.Header
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { h = r.Header.Clone() })
	_, err := callArgs(t, `{"url":"`+url+`"}`)
	require.NoError(t, err)
	require.Equal(t, "-/http/a%20b%25%C3%A9", h.Get("Mscheduler-Task-Id"), "what a header cannot carry is percent-encoded")
	require.Equal(t, "-/http/a@1@x", h.Get("Mscheduler-Execution-Id"))
	require.Equal(t, "0001-0002", h.Get("Mscheduler-Fencing-Token"))
	require.Equal(t, "w1", h.Get("Mscheduler-Worker-Id"))
	require.Equal(t, "3", h.Get("Mscheduler-Attempt"))
	require.Equal(t, "-/http/a@1", h.Get("Idempotency-Key"), "the same for all executions of a life")
	_, err = callArgs(t, `{"url":"`+url+`","headers":{"Idempotency-Key":"mine"}}`)
	require.NoError(t, err)
	require.Equal(t, "mine", h.Get("Idempotency-Key"), "the caller's own key wins")
}

func TestBodyIsCutToTheLimit(t *testing.T) {
	var body string
	url := target(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	body = strings.Repeat("x", 31) + "ä and more" // the limit goes through the ä
	got, err := callArgs(t, `{"url":"`+url+`"}`)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", 31), got.Body)
	require.True(t, got.Truncated)
	body = strings.Repeat("x", 32)
	got, err = callArgs(t, `{"url":"`+url+`"}`)
	require.NoError(t, err)
	require.False(t, got.Truncated, "exactly the limit is not cut")
	body = "\x00\xff"
	got, err = callArgs(t, `{"url":"`+url+`"}`)
	require.NoError(t, err)
	require.Equal(t, "base64", got.Encoding)
	require.Equal(t, "AP8=", got.Body)
}

func TestUnexpectedStatusIsAnErrorThatIsRetried(t *testing.T) {
	for _, status := range []int{400, 401, 404, 408, 429, 500, 503} {
		url := target(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "why\n  it failed")
		})
		_, err := callArgs(t, `{"url":"`+url+`/p?token=secret"}`)
		require.ErrorContains(t, err, fmt.Sprintf("GET %s/p: answered %d %s: why it failed", url, status, http.StatusText(status)))
		require.False(t, isFatal(err), "a retry may mend it: %v", err)
	}
}

func TestExpectedStatuses(t *testing.T) {
	var status int
	url := target(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	for expect, want := range map[string]map[int]bool{
		`[404]`:                 {404: true, 200: false},
		`["2xx", 304]`:          {204: true, 304: true, 301: false, 302: false, 500: false},
		`["200-204","500-599"]`: {204: true, 205: false, 503: true},
		`[]`:                    {299: true, 300: false},
	} {
		for s, ok := range want {
			status = s
			_, err := callArgs(t, `{"url":"`+url+`","expect":`+expect+`}`)
			require.Equal(t, ok, err == nil, "%s %d: %v", expect, s, err)
		}
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var status int
	url := target(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
	})
	for s, honoured := range map[int]bool{503: true, 429: true, 408: true, 500: true, 404: false} {
		status = s
		_, err := callArgs(t, `{"url":"`+url+`"}`)
		var v *httpcall.VerdictError
		require.Equal(t, honoured, errors.As(err, &v) && v.Later && v.RetryAfter == 7*time.Second, "%d: %v", s, err)
	}
}

func TestNetworkErrorsAreRetriedAndHideSecrets(t *testing.T) {
	_, err := callArgs(t, `{"url":"http://user:pass@127.0.0.1:1/path?key=secret"}`)
	require.ErrorContains(t, err, "GET http://***@127.0.0.1:1/path")
	require.NotContains(t, err.Error(), "pass@")
	require.NotContains(t, err.Error(), "secret")
	require.False(t, isFatal(err))
}

func TestCallHasATimeout(t *testing.T) {
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := callArgs(t, `{"url":"`+url+`","timeout_ms":20}`)
	require.ErrorContains(t, err, "no answer within 20ms")
	require.False(t, isFatal(err))
}

func TestEndOfTheContextIsTheCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(consumer.ErrShutdown)
		<-r.Context().Done()
	})
	_, err := callWith(t, ctx, `{"url":"`+url+`"}`, HTTPOptions{})
	require.ErrorIs(t, err, consumer.ErrShutdown)
}

func TestRedirects(t *testing.T) {
	var other http.Header
	elsewhere := target(t, func(_ http.ResponseWriter, r *http.Request) { other = r.Header.Clone() })
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/end":
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s", r.Method, body)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/302":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/307":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		}
	})
	got, err := callArgs(t, `{"url":"`+url+`/302"}`)
	require.NoError(t, err)
	require.Equal(t, "GET ", got.Body)

	_, err = callArgs(t, `{"url":"`+url+`/loop"}`)
	require.ErrorContains(t, err, "answered 302 Found, to /loop, which is not followed")

	_, err = callArgs(t, `{"url":"`+url+`/307","body":"b"}`)
	require.ErrorContains(t, err, "answered 307", "a POST is not repeated unless it is asked for")

	got, err = callArgs(t, `{"url":"`+url+`/307","body":"b","max_redirects":1}`)
	require.NoError(t, err)
	require.Equal(t, "POST b", got.Body)

	_, err = callArgs(t, `{"url":"`+url+`/302","body":"b","max_redirects":1}`)
	require.ErrorContains(t, err, "answered 302", "a POST never becomes a GET without its body")

	_, err = callArgs(t, `{"url":"`+url+`/away?token=secret","headers":{"X-Api-Key":"secret"}}`)
	require.NoError(t, err)
	require.Empty(t, other.Get("X-Api-Key"), "the caller's headers stay behind")
	require.Empty(t, other.Get("Referer"), "so does what its URL holds")
	require.NotEmpty(t, other.Get("Mscheduler-Task-Id"))
}

func TestLinkLocalAddressesAreRefused(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "100.100.100.200", "[::ffff:169.254.169.254]"} {
		_, err := callArgs(t, `{"url":"http://`+host+`/latest/meta-data"}`)
		require.True(t, isFatal(err), "%s: %v", host, err)
		require.ErrorContains(t, err, "link-local or cloud metadata")
	}
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
	})
	_, err := callArgs(t, `{"url":"`+url+`"}`)
	require.True(t, isFatal(err), "a redirect is no way around: %v", err)
	require.ErrorIs(t, err, httpcall.ErrForbiddenAddress)
}

func TestNoProxyFetchesMetadata(t *testing.T) {
	proxy := target(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "outside.example" {
			http.Redirect(w, r, "http://2852039166/latest/meta-data", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "credentials")
	})
	u, err := url.Parse(proxy)
	require.NoError(t, err)
	for _, to := range []string{"http://outside.example/", "http://0xa9fea9fe/", "http://169.254.169.254./", "http://[64:ff9b::a9fe:a9fe]/"} {
		_, err := callWith(t, t.Context(), `{"url":"`+to+`"}`, HTTPOptions{Reach: httpcall.Reach{Proxy: http.ProxyURL(u)}})
		require.True(t, isFatal(err), "%s: %v", to, err)
		require.ErrorIs(t, err, httpcall.ErrForbiddenAddress, to)
	}
	_, err = callWith(t, t.Context(), `{"url":"http://other.example/","headers":{"Host":"169.254.169.254"}}`, HTTPOptions{Reach: httpcall.Reach{Proxy: http.ProxyURL(u)}})
	require.True(t, isFatal(err), "what a proxy is asked for is the header Host: %v", err)
}
