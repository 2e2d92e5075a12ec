package cli

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// masked stands for a secret in what is shown.
const masked = "***"

// withoutCredentials is a MongoDB URI without user name, password and the secrets among its options. A URI that
// the driver does not read, or whose database has an @, is masked as a whole: nobody can tell where its password
// ends.
func withoutCredentials(uri string) string {
	if uri == "" {
		return ""
	}
	scheme, rest, _ := strings.Cut(uri, "://")
	user, hosts, found := strings.Cut(rest, "@") // the driver wants others before the hosts escaped
	if !found {
		user, hosts = "", rest
	}
	hosts, query, hasQuery := strings.Cut(hosts, "?")
	if strings.Contains(hosts, "@") {
		return masked
	}
	var plain, shown []string
	for _, o := range optionsOf(query) {
		name, _, _ := strings.Cut(o, "=")
		if !strings.HasPrefix(strings.ToLower(name), "srv") {
			plain = append(plain, o)
		}
		if secretOption(name) {
			o = name + "=" + masked
		}
		shown = append(shown, o)
	}
	join := func(scheme, user string, options []string) string {
		uri := scheme + "://"
		if found {
			uri += user + "@"
		}
		if uri += hosts; hasQuery {
			uri += "?" + strings.Join(options, "&")
		}
		return uri
	}
	// The driver asks name servers about the other scheme.
	if _, err := connstring.Parse(join(connstring.SchemeMongoDB, user, plain)); err != nil || scheme != connstring.SchemeMongoDB && scheme != connstring.SchemeMongoDBSRV {
		return masked
	}
	return join(scheme, masked, shown)
}

// optionsOf are the options of a query, as the driver divides it.
func optionsOf(query string) []string {
	return strings.FieldsFunc(query, func(r rune) bool { return r == ';' || r == '&' })
}

// secretOption says whether an option of a MongoDB URI may have a secret value.
func secretOption(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.ToLower(name)
	return strings.Contains(name, "password") || name == "authmechanismproperties"
}

// withoutUser is the text of a setting, without user name and password if it is a URL that has them.
func withoutUser(text string) string {
	if !strings.Contains(text, "://") || !strings.Contains(text, "@") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return masked
	}
	u.User = nil
	scheme, rest, _ := strings.Cut(u.String(), "://")
	return scheme + "://" + masked + "@" + rest
}

// quotation is a piece of an error's text between quotation marks.
var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// withoutSecrets takes what may be secret out of the driver's error about a URI, which quotes pieces of it.
func withoutSecrets(text, uri string) string {
	text = strings.ReplaceAll(text, uri, "it")
	_, rest, _ := strings.Cut(uri, "://")
	secrets := []string{rest[:max(strings.LastIndex(rest, "@"), 0)]}
	if _, query, found := strings.Cut(rest, "?"); found {
		for _, o := range optionsOf(query) {
			if name, value, _ := strings.Cut(o, "="); secretOption(name) {
				secrets = append(secrets, value)
			}
		}
	}
	return quotation.ReplaceAllStringFunc(text, func(q string) string {
		piece, err := strconv.Unquote(q)
		for _, s := range secrets {
			if s != "" && (err != nil || strings.Contains(s, piece) || strings.Contains(piece, s)) {
				return strconv.Quote(masked)
			}
		}
		return q
	})
}
