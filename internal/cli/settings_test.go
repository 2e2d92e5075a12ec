package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// settings writes a configuration file.
func (s *session) settings(text string) (name string) {
	s.t.Helper()
	name = filepath.Join(s.dir, "mscheduler.yaml")
	require.NoError(s.t, os.WriteFile(name, []byte(text), 0o600))
	require.NoError(s.t, os.Chmod(name, 0o600))
	return name
}

func TestAFlagWinsOverAVariableOverTheFileOverTheDefault(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := s.settings("output: yaml\nuri: mongodb://nowhere.invalid\n")
	require.Contains(t, s.ok("version").stdout, "mscheduler", "the default is a table")
	require.True(t, strings.HasPrefix(s.ok("version", "--config", file).stdout, "---\n"), "the file says yaml")
	s.env.Output = "json"
	require.True(t, strings.HasPrefix(s.ok("version", "--config", file).stdout, "{"), "the variable says json")
	require.True(t, strings.HasPrefix(s.ok("version", "--config", file, "-o", "yaml").stdout, "---\n"), "the flag says yaml")
	s.ok("db", "migrate", "--config", file) // at the variable's database
	s.env.Config, s.uri = file, ""
	s.fails(ExitUnreachable, []string{"nowhere.invalid"}, "db", "status")
	s.env.Config = filepath.Join(s.dir, "none.yaml")
	s.ok("version", "--config", file)
	s.fails(ExitUsage, []string{"--config: ", "none.yaml"}, "version")
}

func TestTheFileConfiguresAWorker(t *testing.T) {
	s := newSession(t)
	file := s.settings(fmt.Sprintf(`{"uri": %q, "database": %q, "work": {"worker-id": "of-the-file", "concurrency": 7, "category": ["a", "b"], "poll-interval": "2s", "metrics-bind": "127.0.0.1:0"}, "serve": {"concurrency": 9}}`, s.uri, s.database))
	s.uri = ""
	_, errs, stop := s.start("work", "--config", file)
	side := s.shown(errs, "metrics")
	s.eventually("a worker of the file", func() bool {
		_, text := s.request(http.MethodGet, side+"/metrics", "", "")
		return strings.Contains(text, "\nmscheduler_process_slots 7\n")
	})
	var list string
	s.eventually("its first heartbeat", func() bool {
		list = s.ok("worker", "list", "--config", file, "-o", "json").stdout
		return strings.Contains(list, `"id":"of-the-file"`)
	})
	require.Contains(t, list, `"categories":["a","b"]`)
	require.Equal(t, ExitOK, stop().code)
}

// The text of a list setting means in a file what it means on the command line and in a variable.
func TestATextOfAListIsDividedAtCommas(t *testing.T) {
	for text, want := range map[string][]string{
		"a": {"a"}, `"a=x,b=y"`: {"a=x", "b=y"}, `'"a,b",c'`: {"a,b", "c"}, `""`: {}, `["a,b", c]`: {"a,b", "c"}, "[]": {},
	} {
		var f issuerFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.register(flags)
		name := filepath.Join(t.TempDir(), "mscheduler.yaml")
		require.NoError(t, os.WriteFile(name, []byte("serve: {oidc-roles: "+text+"}"), 0o600))
		file, err := readSettings(name)
		require.NoError(t, err, text)
		require.NoError(t, setFlag(flags.Lookup("oidc-roles"), file.of("serve")["oidc-roles"]))
		require.ElementsMatch(t, want, f.roles, text)
	}
}

func TestMistakesInAConfigurationFileHaveTheirPlaces(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct{ text, say string }{
		{"urn: x", ":1:1: urn is not known here; want database, log-level, output, prefix, uri, secret-key, serve, work"},
		{"prefix: a\nserve:\n  bnd: x", ":3:3: serve.bnd is not known here; want allow-exec, "},
		{"serve:\n  log-level: info", ":2:3: serve.log-level is not known here"},
		{"config: x", ":1:1: config is not known here"},
		{"serve: {check-config: true}", ":1:9: serve.check-config is not known here"},
		{"serve: {completion-addr: x}", ":1:9: serve.completion-addr is not known here"},
		{"work: x", `:1:1: work is "x"; want names with values`},
		{"work:\n  concurrency: many", `:2:3: work.concurrency is "many"; want a whole number`},
		{"work: {periodic: sometimes}", `:1:8: work.periodic is "sometimes"; want true or false`},
		{"work: {poll-interval: soon}", `:1:8: work.poll-interval is "soon"; want a duration`},
		{"work: {concurrency: [1]}", ":1:8: work.concurrency has a list; want one value"},
		{`work: {tenant: 'a"b'}`, `:1:8: work.tenant is "a\"b"; want a list, or values separated by commas`},
		{"uri: [a]", ":1:1: uri has a list; want one value"},
		{"secret-key: [a]", ":1:1: secret-key has a list; want one value"},
		{"uri: {a: b}", ":1:1: uri has fields; want a value"},
		{"uri:", ":1:1: uri has no value"},
		{"uri: a\nuri: b", "uri"},
		{"- uri", ":1:1: has a list; want names with values"},
		{"uri: a\n---\nuri: b", "is a second document"},
		{"uri: 'a", "mscheduler.yaml:1:"},
		{"log-level: loud", `:1:1: log-level is "loud"; want debug`},
		{"output: xml", `:1:1: output is "xml"; want table`},
		{"secret-key: short", "mscheduler.yaml:1:1"},
	} {
		r := s.run("version", "--config", s.settings(c.text))
		require.Equal(t, ExitUsage, r.code, "%s\n%s", c.text, r.stderr)
		require.Contains(t, r.stderr, c.say, c.text)
	}
	r := s.fails(ExitUsage, []string{":1:1: a is not known", ":2:1: b is not known"}, "version", "--config", s.settings("a: 1\nb: 2"))
	require.NotContains(t, r.stdout, "mscheduler")
	for _, empty := range []string{"", "# nothing", "serve:\n  # bind: x\n"} {
		s.ok("version", "--config", s.settings(empty))
	}
	s.fails(ExitUsage, []string{"concurrency is 0; want 1 to"}, "work", "--config", s.settings("work: {concurrency: 0}"))
}

func TestSecretsThatOthersCanReadAreWarnedOf(t *testing.T) {
	s := newSession(t)
	for text, secret := range map[string]bool{
		"secret-key: " + strings.Repeat("ab", 32): true, "uri: mongodb://u:p@h": true, "uri: mongodb://u:p/w@h": true, "uri: mongodb://u:p w@h": true,
		"uri: mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:x": true, "uri: mongodb://h": false, "uri: mongodb://h/?tls=true": false, "prefix: x": false,
	} {
		s.uri = ""
		file := s.settings(text)
		require.Empty(t, s.ok("version", "--config", file).stderr)
		require.NoError(t, os.Chmod(file, 0o644))
		require.Equal(t, secret, strings.Contains(s.ok("version", "--config", file).stderr, "other users can read the secrets in "+file), text)
	}
}

// Each flag with a variable gets its value, and the help of each variable is that of a flag.
func TestEachVariableReachesItsFlag(t *testing.T) {
	e := Environment{Config: "c", URI: "u", Database: "d", Prefix: "p", Output: "json", LogLevel: "info", WorkerID: "w", Concurrency: "5",
		OIDCIssuer: "i", OIDCJWKS: "j", OIDCAudience: "a", OIDCRoles: "r", OIDCRoleClaim: "rc", OIDCTenantsClaim: "tc"}
	seen := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().AddFlagSet(cmd.InheritedFlags())
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, value := e.variable(f)
			require.Equal(t, name != "", strings.Contains(f.Usage, "(MSCHEDULER_"), f.Name)
			if name != "" {
				require.NotEmpty(t, value, name)
				require.Contains(t, f.Usage, name)
				seen[name] = true
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk((&app{}).root())
	require.Len(t, seen, 14)
}

func TestTheLogLevelFollowsTheFile(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	hangups := make(chan os.Signal, 1)
	s.hangups = func() (<-chan os.Signal, func()) { return hangups, func() {} }
	write := func(text string, seconds int) string {
		file := s.settings(text)
		at := time.Now().Add(time.Duration(seconds) * time.Second) // a file system may have coarse times
		require.NoError(t, os.Chtimes(file, at, at))
		return file
	}
	file := write("log-level: error", 1)
	_, errs, _ := s.worker("--config", file)
	says := func(text string) {
		t.Helper()
		s.eventually(text, func() bool { return strings.Contains(errs.String(), text) })
	}
	write("log-level: debug\nwork: {concurrency: 9}", 2)
	says(`"log_level":"debug"`)
	says(`"settings":["concurrency"]`)
	write("log-level: loud", 3)
	says(`log-level is \"loud\"`)
	write("log-level: info\nwork: {concurrency: 9}", 4)
	says(`"log_level":"info"`)
	at, err := os.Stat(file)
	require.NoError(t, err)
	s.settings("log-level: warn\nwork: {concurrency: 9}")
	require.NoError(t, os.Chtimes(file, at.ModTime(), at.ModTime())) // unchanged, for all that its time and size tell
	hangups <- os.Interrupt
	says(`"log_level":"warn"`)
}

func TestTheLogLevelOfAFlagStays(t *testing.T) {
	s := newSession(t)
	hangups := make(chan os.Signal)
	s.hangups = func() (<-chan os.Signal, func()) { return hangups, func() {} }
	file := s.settings("work: {tenant: a}")
	_, errs, _ := s.worker("--config", file, "--log-level", "warn", "--tenant", "-")
	s.settings("log-level: debug\nwork: {tenant: b}")
	hangups <- os.Interrupt
	hangups <- os.Interrupt // taken when the file has been read
	require.Contains(t, errs.String(), `"settings":["tenant"]`)
	require.NotContains(t, errs.String(), "log_level")
}

func TestCheckConfigShowsWhereEachSettingComesFrom(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.secret = strings.Repeat("cd", 32)
	file := s.settings("work:\n  poll-interval: 2s\n  http-allow: [a.example.org, b.example.org]\n")
	r := s.ok("work", "--check-config", "--config", file, "--concurrency", "7", "-o", "json")
	var out struct{ Settings []shownSetting }
	r.json(&out)
	got := map[string]shownSetting{}
	for _, x := range out.Settings {
		got[x.Name] = x
	}
	for _, want := range []shownSetting{
		{"poll-interval", "2s", file + ":2:3"},
		{"http-allow", "[a.example.org,b.example.org]", file + ":3:3"},
		{"concurrency", "7", "--concurrency"},
		{"database", s.database, "MSCHEDULER_DATABASE"},
		{"config", file, "--config"},
		{"secret-key", "***", "MSCHEDULER_SECRET_KEY"},
		{"shutdown-timeout", "30s", "default"},
		{"log-level", "warn", "default"},
	} {
		require.Equal(t, want, got[want.Name])
	}
	require.NotContains(t, r.stdout+r.stderr, s.secret)
	require.Contains(t, r.stderr, "it is not set up yet")
	require.Contains(t, s.run("db", "status").stdout+s.run("db", "status").stderr, "not set up", "it writes nothing")

	table := s.run("work", "--check-config", "--uri", "mongodb://joe:hush@127.0.0.1:1/?authMechanismProperties=AWS_SESSION_TOKEN:hush")
	require.Equal(t, ExitUnreachable, table.code, table.stderr)
	require.Regexp(t, `(?m)^uri +mongodb://\*\*\*@127\.0\.0\.1:1/\?authMechanismProperties=\*\*\* +--uri$`, table.stdout)
	require.NotContains(t, table.stdout+table.stderr, "hush")
}

func TestCheckConfigFindsWhatKeepsTheProcessFromStarting(t *testing.T) {
	s := newSession(t)
	s.environ = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	for _, command := range []string{"serve", "work"} {
		start := s.fails(ExitUsage, []string{"OTEL_EXPORTER_OTLP_PROTOCOL is"}, command)
		check := s.fails(ExitUsage, nil, command, "--check-config")
		require.Contains(t, check.stderr, strings.TrimSpace(start.stderr))
	}
	s.environ = s.environ[:1]
	s.ok("work", "--check-config") // the collector need not be there

	file := s.settings("serve: {bind: ''}")
	for _, args := range [][]string{{"serve", "--config", file}, {"serve", "--bind", ""}, {"serve", "--bind", "", "--completion-url", "http://127.0.0.1"}} {
		s.fails(ExitUsage, []string{"--bind is empty; want an address"}, args...)
		s.fails(ExitUsage, []string{"--bind is empty; want an address"}, append(args, "--check-config")...)
	}
}

func TestCheckConfigFindsAllThatIsWrongWithoutListening(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	cert, key := certificate(t, s.dir, 1)
	other, _ := certificate(t, t.TempDir(), 2)
	s.fails(ExitUsage, []string{"tls: private key does not match", "--bind: ", "--metrics-bind: ", "--profile-bind is", "--http-body-limit is 0", "worker_id is"},
		"serve", "--check-config", "--tls-cert", other, "--tls-key", key, "--bind", "127.0.0.1:x", "--metrics-bind", "x", "--profile-bind", ":1", "--http-body-limit", "0", "--worker-id", "*")
	s.fails(ExitUsage, []string{"--completion-url to the one", "there is no token"}, "serve", "--check-config", "--bind", ":8080")
	s.fails(ExitRefused, []string{"there is no token"}, "serve", "--check-config", "--bind", ":8080", "--completion-url", "https://tasks.example.org")
	s.fails(ExitUsage, []string{"--completion-url is", "--completion-addr: "}, "work", "--check-config", "--completion-addr", "x", "--completion-url", "ftp://x")
	s.fails(ExitUsage, []string{"--completion-addr is"}, "work", "--check-config", "--completion-addr", ":1")
	twice := s.fails(ExitUsage, []string{"--http-allow"}, "work", "--check-config", "--http-allow", "http://x")
	require.Equal(t, 1, strings.Count(twice.stderr, "http://x"), twice.stderr)

	url, _, _ := s.serving("--no-worker", "--no-engines")
	r := s.ok("serve", "--check-config", "--bind", strings.TrimPrefix(url, "http://"), "--tls-cert", cert, "--tls-key", key)
	require.Contains(t, r.stderr, "its schema is version")
	require.Contains(t, r.stderr, "the configuration is right", "although the port is taken: it does not listen")
}
