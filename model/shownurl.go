package model

import (
	"net/url"
	"strings"
)

// ShownURL is an address as people may see it, wherever one is shown: with [HiddenSecret]
// for user and password, for the values of its query and for its fragment, which may be
// secrets; of what is no address nothing is shown. Shown twice it is the same.
func ShownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return HiddenSecret
	}
	rest, fragment, hasFragment := strings.Cut(raw, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	if before, after, ok := strings.Cut(rest, "//"); ok && u.User != nil {
		authority, path, slash := strings.Cut(after, "/")
		rest = before + "//" + HiddenSecret + authority[strings.LastIndexByte(authority, '@'):]
		if slash {
			rest += "/" + path
		}
	}
	if hasQuery {
		parts := strings.Split(query, "&")
		for i, p := range parts {
			name, value, _ := strings.Cut(p, "=")
			switch {
			case strings.Trim(value, "=") != "":
				parts[i] = name + "=" + HiddenSecret
			case p != "": // a name without a value may be what is secret
				parts[i] = HiddenSecret
			}
		}
		rest += "?" + strings.Join(parts, "&")
	}
	if hasFragment && fragment != "" {
		rest += "#" + HiddenSecret
	}
	return rest
}

// HidesPart says whether a part of the address is [HiddenSecret] in place of what it is, as
// [ShownURL] writes it: such an address cannot be called.
func HidesPart(raw string) bool {
	rest, fragment, _ := strings.Cut(raw, "#")
	rest, query, _ := strings.Cut(rest, "?")
	if fragment == HiddenSecret || rest == HiddenSecret || strings.Contains(rest, "//"+HiddenSecret+"@") {
		return true
	}
	for p := range strings.SplitSeq(query, "&") {
		if name, value, ok := strings.Cut(p, "="); value == HiddenSecret || !ok && name == HiddenSecret {
			return true
		}
	}
	return false
}
