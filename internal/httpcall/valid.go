package httpcall

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ From, To int }

// UnmarshalJSON reads 200, "200", "2xx" or "200-204".
func (r *StatusRange) UnmarshalJSON(data []byte) error {
	s := strings.Trim(string(data), `"`)
	from, to, isRange := strings.Cut(s, "-")
	if c := s; len(c) == 3 && strings.EqualFold(c[1:], "xx") {
		from, to, isRange = c[:1]+"00", c[:1]+"99", true
	}
	if !isRange {
		to = from
	}
	var err1, err2 error
	r.From, err1 = strconv.Atoi(from)
	r.To, err2 = strconv.Atoi(to)
	if err1 != nil || err2 != nil || !r.valid() {
		return input.Invalid("args.expect", `has %s; want statuses from 100 to 599, such as 200, "2xx" or "200-204"`, data)
	}
	return nil
}

func (r StatusRange) valid() bool { return r.From >= 100 && r.To <= 599 && r.From <= r.To }

// MarshalJSON writes what UnmarshalJSON reads.
func (r StatusRange) MarshalJSON() ([]byte, error) {
	if r.From == r.To {
		return json.Marshal(r.From)
	}
	return json.Marshal(fmt.Sprintf("%d-%d", r.From, r.To))
}

// expects reports whether the status is a success: in one of the ranges, 2xx if there are none.
func expects(ranges []StatusRange, status int) bool {
	if len(ranges) == 0 {
		return status/100 == 2
	}
	return slices.ContainsFunc(ranges, func(r StatusRange) bool { return r.From <= status && status <= r.To })
}

// ValidStatuses finds a range that is none.
func ValidStatuses(field string, ranges []StatusRange) error {
	for _, r := range ranges {
		if !r.valid() {
			return input.Invalid(field, "has %d-%d; want statuses from 100 to 599", r.From, r.To)
		}
	}
	return nil
}

// ValidMethod checks a method; "" is one, the default. CONNECT would open a tunnel to the host that the header Host
// names. TRACE would answer with the headers, secrets included.
func ValidMethod(field, method string) error {
	switch {
	case method == http.MethodConnect || method == http.MethodTrace:
		return input.Invalid(field, "is %s, which is not supported; want another HTTP method, such as POST", method)
	case method != "" && (!isToken(method) || strings.ToUpper(method) != method):
		return input.Invalid(field, "is %q; want an HTTP method in capitals, such as POST", method)
	default:
		return nil
	}
}

// ValidURL checks an http or https URL. The error shows it as [safetext.URL] does, without what
// may be secret.
func ValidURL(field, raw string) error {
	if raw == "" {
		return input.Invalid(field, "is empty; want an http or https URL")
	}
	fault := safetext.URLFault(raw)
	u, _ := url.Parse(raw)
	switch {
	case fault != "":
		return input.Invalid(field, "%s; want an absolute http or https address", fault)
	case u.Scheme != "http" && u.Scheme != "https":
		return input.Invalid(field, "is %q; want one that begins with http:// or https://", safetext.URL(raw))
	case u.Hostname() == "":
		return input.Invalid(field, "is %q, which names no host", safetext.URL(raw))
	default:
		return nil
	}
}

// headerPrefix begins the headers with which the worker says who calls.
const headerPrefix = "Mscheduler-"

// ValidHeader checks one header; field names all of them.
func ValidHeader(field, name, value string) error {
	field += "." + name
	switch {
	case !isToken(name):
		return input.Invalid(field, "is not a header's name")
	case strings.HasPrefix(http.CanonicalHeaderKey(name), headerPrefix):
		return input.Invalid(field, "is set by the worker; choose another name")
	case !isHeaderValue(value):
		return input.Invalid(field, "has a character that no header may have (a line break, say)")
	default:
		return nil
	}
}

// isToken reports whether s is a token of RFC 9110, as names of methods and headers are.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// isHeaderValue reports whether s has no control character other than tab.
func isHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// Escape percent-encodes what a header cannot carry: a task's key may be any text.
func Escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
		}
	}
	return b.String()
}
