package httpcall

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mscheduler/mscheduler/internal/safetext"
)

const (
	// excerptBytes of an unexpected answer go into the error.
	excerptBytes = 300
	// drainBytes are read past the limit so that the connection can be used again.
	drainBytes = 256 << 10
	// MaxRetryAfter bounds what a target may ask for: a wrong header must not park a task.
	MaxRetryAfter = 24 * time.Hour
)

// Body is what is kept of an answer's body.
type Body struct {
	Text      string
	Encoding  string // "base64" where the text would be none, else ""
	Truncated bool   // there was more than the limit
}

// ReadBody takes the answer's body, cut to the limit.
func ReadBody(res *http.Response, limit int) (Body, error) {
	data, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	if err != nil {
		return Body{}, err
	}
	var b Body
	if b.Truncated = len(data) > limit; b.Truncated {
		data = data[:limit]
		_, _ = io.CopyN(io.Discard, res.Body, drainBytes) // only so that the connection can be used again
	}
	b.Text, b.Encoding = AsText(data, b.Truncated)
	return b, nil
}

// AsText gives bytes as text, or as base64 where they are none. A rune that the cut
// went through is left out.
func AsText(b []byte, cut bool) (text, encoding string) {
	if cut {
		for i := 0; i < utf8.UTFMax && len(b) > 0; i++ {
			if r, size := utf8.DecodeLastRune(b); r != utf8.RuneError || size != 1 {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

// Unexpected is the error for an answer that is no success: its status, where a redirect
// would have led, and the beginning of its body.
func Unexpected(what string, res *http.Response, b Body) error {
	text := fmt.Sprintf("%s: answered %d %s", what, res.StatusCode, http.StatusText(res.StatusCode))
	if loc := res.Header.Get("Location"); loc != "" && res.StatusCode/100 == 3 {
		text += ", to " + safetext.URL(loc) + ", which is not followed"
	}
	if body := strings.Join(strings.Fields(b.Text), " "); body != "" && b.Encoding == "" {
		if len(body) > excerptBytes {
			body = strings.ToValidUTF8(body[:excerptBytes], "") + "…"
		}
		text += ": " + body
	}
	return errors.New(text)
}

// RetryAfter is when a target that is busy wants to be asked again, by its header of that
// name; false when it does not say, or its status does not mean "not now". It is at most
// [MaxRetryAfter].
func RetryAfter(res *http.Response, now time.Time) (time.Duration, bool) {
	s := res.StatusCode
	if s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout {
		return 0, false
	}
	return parseRetryAfter(res.Header.Get("Retry-After"), now)
}

// parseRetryAfter reads seconds, or a date.
func parseRetryAfter(v string, now time.Time) (time.Duration, bool) {
	if v == "" {
		return 0, false
	}
	var d time.Duration
	if n, err := strconv.Atoi(v); err == nil {
		d = time.Duration(min(max(n, 0), int(MaxRetryAfter.Seconds()))) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	} else {
		return 0, false
	}
	return min(max(d, 0), MaxRetryAfter), true
}

// Cause is why a call got no answer, without the URL that the client puts before it,
// password and all.
func Cause(err error) error {
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// Shown is the URL as errors name it: as people may see it, and without its query.
func Shown(u *url.URL) string {
	c := *u
	c.RawQuery, c.ForceQuery, c.Fragment = "", false, ""
	return safetext.URL(c.String())
}
