package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answering is a transport whose answers have the body.
type answering struct{ body io.Reader }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(a.body)}, nil
}

// watched is a body that calls saw before each read.
type watched struct {
	io.Reader
	saw func()
}

func (w watched) Read(p []byte) (int, error) {
	w.saw()
	return w.Reader.Read(p)
}

// broken is a body that ends with the error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func TestACallKeepsItsPlaceUntilTheAnswerHasBeenRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	left := ""
	early := func() { require.Empty(t, left, "the body has not been read") }
	for _, c := range []struct {
		name string
		body io.Reader
		want string
	}{
		{"read", watched{strings.NewReader("done"), early}, "answered"},
		{"cut off", watched{broken{errors.New("reset")}, early}, "answered"},
		{"hanging", watched{broken{context.Canceled}, func() { early(); cancel() }}, "silent"}, // the last: it ends the context
	} {
		left = ""
		caller := &Caller{client: &http.Client{Transport: answering{c.body}}, now: time.Now}
		_, _ = caller.Do(ctx, Call{Method: http.MethodPost, URL: "http://h/", Timeout: time.Hour, Keep: 10, Admit: func(string) (func(bool), error) {
			return func(answered bool) {
				if left = "silent"; answered {
					left = "answered"
				}
			}, nil
		}})
		require.Equal(t, c.want, left, c.name)
	}
}

// A target may repeat what it was told, such as the token of its completion.
func TestNeitherAnAnswerNorAnErrorShowsWhatIsHidden(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusFound, http.StatusInternalServerError} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/done/hunter2")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "bad callback hunter2")
		}))
		defer server.Close()
		none := 0
		caller := New(Reach{}, nil, time.Now)
		defer caller.Close()
		out, err := caller.Do(t.Context(), Call{
			Method: http.MethodPost, URL: server.URL, Timeout: time.Hour, Keep: 100, Redirects: &none, Hide: "hunter2",
		})
		require.Equal(t, status == http.StatusOK, err == nil)
		require.Equal(t, "bad callback ***", out.Body)
		require.NotContains(t, fmt.Sprint(out, err), "hunter2")
	}
}
