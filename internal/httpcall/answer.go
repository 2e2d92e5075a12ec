package httpcall

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const (
	// excerptBytes of an unexpected answer go into the error.
	excerptBytes = 300
	// drainBytes are read past the limit so that the connection can be reused.
	drainBytes = 256 << 10
	// maxRetryAfter bounds what a target may ask for: a wrong header must not park a task.
	maxRetryAfter = 24 * time.Hour
)

// keptHeaders are the headers of an answer that are kept: those that describe its content.
var keptHeaders = []string{"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag", "Last-Modified"}

// Answer is what is kept of an answer. It leaves out what differs between equal calls (dates,
// durations): tasks that end alike are finished by one statement of the database.
type Answer struct {
	Status int `json:"status,omitempty"`
	// Headers are those that describe the content.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is cut to the limit of the call.
	Body string `json:"body,omitempty"`
	// Encoding is "base64" if the body is not text, else "".
	Encoding string `json:"encoding,omitempty"`
	// Truncated says that the body was longer.
	Truncated bool `json:"truncated,omitempty"`
}

func readAnswer(res *http.Response, limit int) (Answer, error) {
	a := Answer{Status: res.StatusCode}
	data, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	if err != nil {
		return a, err
	}
	if a.Truncated = len(data) > limit; a.Truncated {
		data = data[:limit]
		_, _ = io.CopyN(io.Discard, res.Body, drainBytes) // only to reuse the connection
	}
	a.Body, a.Encoding = AsText(data, a.Truncated)
	for _, name := range keptHeaders {
		if v := res.Header.Get(name); v != "" {
			if a.Headers == nil {
				a.Headers = map[string]string{}
			}
			a.Headers[name] = strings.ToValidUTF8(v, "�")
		}
	}
	return a, nil
}

// hide puts *** in the place of a text.
func (a *Answer) hide(text string) {
	if text == "" {
		return
	}
	a.Body = strings.ReplaceAll(a.Body, text, safetext.Hidden)
	for name, v := range a.Headers {
		a.Headers[name] = strings.ReplaceAll(v, text, safetext.Hidden)
	}
}

// AsText returns bytes as text, or as base64 if they are none. It leaves out a rune that was cut.
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

// unexpected is the error of an answer that is no success: its status, where a redirect would
// have led, and the beginning of its body.
func (a Answer) unexpected(what string) error {
	text := fmt.Sprintf("%s: answered %d %s", what, a.Status, http.StatusText(a.Status))
	if loc := a.Headers["Location"]; loc != "" && a.Status/100 == 3 {
		text += ", to " + safetext.URL(loc) + ", which is not followed"
	}
	if body := strings.Join(strings.Fields(a.Body), " "); body != "" && a.Encoding == "" {
		if len(body) > excerptBytes {
			body = strings.ToValidUTF8(body[:excerptBytes], "") + "…"
		}
		text += ": " + body
	}
	return errors.New(text)
}

// retryAfter returns when a busy target wants the next try, at most [maxRetryAfter]: its header
// holds seconds or a date. It is false without a valid header, or if the status does not mean
// "not now".
func retryAfter(res *http.Response, now time.Time) (time.Duration, bool) {
	s, v := res.StatusCode, res.Header.Get("Retry-After")
	if s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout {
		return 0, false
	}
	var d time.Duration
	if n, err := strconv.Atoi(v); err == nil {
		d = time.Duration(min(n, int(maxRetryAfter.Seconds()))) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	} else {
		return 0, false
	}
	return min(max(d, 0), maxRetryAfter), true
}

// Bounds of the parts of a call in its record, in bytes.
const (
	recordedURL     = 2 << 10
	recordedHeader  = 1 << 10
	recordedHeaders = 4 << 10 // all of them
	recordedBody    = 4 << 10
)

// Record returns the recorded part of a request, without the worker's headers and the credentials
// in the URL and the other headers.
func (c Call) Record() schedule.HTTPRequest {
	out := schedule.HTTPRequest{Method: c.Method}
	url := strings.ReplaceAll(safetext.URL(c.URL), "%2A%2A%2A", safetext.Hidden) // encoded, as a path has it
	out.URL = cut(url, recordedURL, &out.Truncated)
	out.Headers = headerLines(secret.HideHeaders(c.Headers), &out.Truncated)
	out.Body = cut(c.Body, recordedBody, &out.Truncated)
	return out
}

// Record returns the recorded part of an answer; nil if there was none.
func (a Answer) Record() *schedule.HTTPResponse {
	if a.Status == 0 {
		return nil
	}
	out := &schedule.HTTPResponse{Status: a.Status, Encoding: a.Encoding, Truncated: a.Truncated}
	out.Headers = headerLines(a.Headers, &out.Truncated)
	out.Body = cut(a.Body, recordedBody, &out.Truncated)
	return out
}

// RecordError returns the recorded part of the error of a call; "" for none.
func RecordError(err error) string {
	if err == nil {
		return ""
	}
	var truncated bool
	return cut(err.Error(), recordedHeader, &truncated)
}

func headerLines(headers map[string]string, truncated *bool) (lines []string) {
	left := recordedHeaders
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		line := cut(name+": "+headers[name], recordedHeader, truncated)
		if left -= len(line); left < 0 {
			*truncated = true
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// cut returns the head of a text that is too long.
func cut(s string, most int, truncated *bool) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	*truncated = true
	return strings.ToValidUTF8(s[:most], "")
}
