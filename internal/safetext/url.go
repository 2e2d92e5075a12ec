package safetext

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// Hidden stands where a secret would be shown.
const Hidden = "***"

// placeholder is a part of an address that each call fills, such as {{run_id}}: no secret.
var placeholder = regexp.MustCompile(`^\{\{[^{}]*\}\}$`)

// URL is an address as people may see it, wherever one is shown: with [Hidden]
// for user and password, for the values of its query and for its fragment, which may be
// secrets; of what is no address nothing is shown. A placeholder stays. Shown twice it is the same.
func URL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return Hidden
	}
	rest, fragment, hasFragment := strings.Cut(raw, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	if before, after, ok := strings.Cut(rest, "//"); ok && u.User != nil {
		authority, path, slash := strings.Cut(after, "/")
		rest = before + "//" + Hidden + authority[strings.LastIndexByte(authority, '@'):]
		if slash {
			rest += "/" + path
		}
	}
	if hasQuery {
		parts := strings.Split(query, "&")
		for i, p := range parts {
			name, value, _ := strings.Cut(p, "=")
			switch {
			case placeholder.MatchString(value) || placeholder.MatchString(p):
			case strings.Trim(value, "=") != "":
				parts[i] = name + "=" + Hidden
			case p != "": // a name without a value may be what is secret
				parts[i] = Hidden
			}
		}
		rest += "?" + strings.Join(parts, "&")
	}
	if hasFragment && fragment != "" {
		rest += "#" + Hidden
	}
	return rest
}

// quoted is a part of an address in an error about it.
var quoted = regexp.MustCompile(` "(\\.|[^"\\])*"`)

// URLFault returns the reason why a text cannot be read as an http or https address, or "". The reason repeats no
// part of the text. The caller checks scheme and host.
func URLFault(raw string) string {
	u, err := url.Parse(raw)
	switch ue := (*url.Error)(nil); {
	case errors.As(err, &ue):
		return "is not a URL: " + quoted.ReplaceAllString(ue.Err.Error(), "")
	case u.Opaque != "":
		return "does not begin with http:// or https://"
	default:
		return ""
	}
}

// HidesPart says whether a part of the address is [Hidden] in place of what it is, as
// [URL] writes it: such an address cannot be called.
func HidesPart(raw string) bool {
	rest, fragment, _ := strings.Cut(raw, "#")
	rest, query, _ := strings.Cut(rest, "?")
	if fragment == Hidden || rest == Hidden || strings.Contains(rest, "//"+Hidden+"@") {
		return true
	}
	for p := range strings.SplitSeq(query, "&") {
		if name, value, ok := strings.Cut(p, "="); value == Hidden || !ok && name == Hidden {
			return true
		}
	}
	return false
}
