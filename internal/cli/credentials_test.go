package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoShownURIHasItsPassword(t *testing.T) {
	for uri, shown := range map[string]string{
		"":                                                 "",
		"mongodb://db1,db2:27018/x?tls=true":               "mongodb://db1,db2:27018/x?tls=true",
		"mongodb://app:hush@db/x?tls=true":                 "mongodb://***@db/x?tls=true",
		"mongodb://app:hu sh@db/x":                         "mongodb://***@db/x",
		"mongodb://app:hush?@db/x?tls=true":                "mongodb://***@db/x?tls=true",
		"mongodb://app:hush@db/?appName=a@b":               "mongodb://***@db/?appName=a@b",
		"mongodb+srv://app:hush@db.invalid/?srvMaxHosts=2": "mongodb+srv://***@db.invalid/?srvMaxHosts=2",
		"mongodb://db/?tls=true;tlsCertificateKeyFile%50assword=hush&tlsCertificateKeyFile=k":    "mongodb://db/?tls=true&tlsCertificateKeyFile%50assword=***&tlsCertificateKeyFile=k",
		"mongodb://db/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:hush": "mongodb://db/?authMechanism=MONGODB-AWS&authMechanismProperties=***",

		"mongodb://app:hu/sh@db/x":              "***",
		"mongodb://app:pa@x/hush@db/app":        "***",
		"mongodb://app:hu@sh@db/x":              "***",
		"mongodb://app:hu:sh@db/x":              "***",
		"mongodb://app:%hush@db/x":              "***",
		"mongodb://app:hush":                    "***",
		"mongodb://db/?appName=hush@b":          "***",
		"mongodb+srv://db/?srvMaxHosts=hush@b@": "***",
		"postgres://app:hush@db/x":              "***",
		"app:hush@db":                           "***",
	} {
		require.Equal(t, shown, withoutCredentials(uri), uri)
	}
	for text, shown := range map[string]string{
		"127.0.0.1:8080":                 "127.0.0.1:8080",
		"ops@example.org":                "ops@example.org",
		"https://id.example.org/x":       "https://id.example.org/x",
		"https://app:hush@example.org/x": "https://***@example.org/x",
		"https://app:hu@sh@example.org":  "https://***@example.org",
		"https://app:hu/sh@example.org":  "***",
	} {
		require.Equal(t, shown, withoutUser(text))
	}
}

func TestAWrongURIIsRefusedWithoutItsPassword(t *testing.T) {
	s := newSession(t)
	for uri, reason := range map[string]string{
		"mongodb://app:hu/sh@db/x":                       "unescaped slash in password",
		"mongodb://app:hu@sh@db/x":                       "unescaped @ sign in user info",
		"mongodb://app:%hush@db/x":                       `invalid password: invalid URL escape "***"`,
		"mongodb://app:hush@db/x?directConnection=maybe": `"maybe"`,
		"app:hush@db":                                    "scheme must be",
	} {
		r := s.fails(ExitUsage, []string{"--uri is not a MongoDB URI", reason}, "work", "--check-config", "--uri", uri)
		require.NotRegexp(t, "hu.?sh|%hu", r.stdout+r.stderr)
	}
	for _, path := range []string{"hush@db/app", "hush@db"} {
		r := s.fails(ExitUsage, []string{"the database in --uri is not valid; write @ / : in a password as %40 %2F %3A"}, "work", "--check-config", "--uri", "mongodb://app:pa@x/"+path)
		require.NotContains(t, r.stdout+r.stderr, "hush")
	}
}
