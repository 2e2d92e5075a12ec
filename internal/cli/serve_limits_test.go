package cli

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAddressThatIsTooLongIsAnsweredAsTheDescriptionSays(t *testing.T) {
	t.Parallel()
	s := limited(http.NotFoundHandler())
	var open sync.WaitGroup // the server lingers after such an answer
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(listener) }() // ends with Close
	t.Cleanup(func() {
		_ = s.Close()
		open.Wait()
	})
	for bytes, want := range map[int]int{60 << 10: http.StatusNotFound, 70 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/?worker="+strings.Repeat("x", bytes), nil)
		require.NoError(t, err)
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, res.StatusCode)
		require.True(t, strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain"), res.Header)
	}
}
