package httpcall

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfterIsReadAsSecondsOrAsADate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"7":                             7 * time.Second,
		"0":                             0,
		"-5":                            0,
		"99999999":                      maxRetryAfter,
		"Thu, 01 Jan 2026 00:01:00 GMT": time.Minute,
		"Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		d, ok := retryAfter(&http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {header}}}, now)
		require.True(t, ok, header)
		require.Equal(t, want, d, header)
	}
	_, ok := retryAfter(&http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"soon"}}}, now)
	require.False(t, ok)
	_, ok = retryAfter(&http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Retry-After": {"7"}}}, now)
	require.False(t, ok, "404 does not mean 'not now'")
}
