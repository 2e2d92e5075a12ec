package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const rulesFile = `name: nightly
cron: 30 2 * * *              # five fields: second 0
timezone: America/New_York
type: report
args: {to: ann, day: 2026-01-31, ids: [1, 12345678901234567]}
overlap: SKIP
max_concurrency: 2
catch_up: {mode: COMPACT, window: 6h}
start_at: 2026-01-01 08:00    # in New York
options:
  timeout: 10m
  retry: {strategy: fixed, interval: 1m, max_errors: 2}
---
- name: every hour
  tenant: acme
  enabled: true
  cron: "@hourly"
  type: exec
  args: {argv: [date]}
  log: none
- name: never again
  enabled: true
  cron: "@every 90m"
  type: report
  max_runs: 1
  description: runs once
`

func TestRulesAreAppliedListedShownAndDeleted(t *testing.T) {
	s := newSession(t)
	path := s.file(rulesFile)
	r := s.ok("periodic", "apply", "-f", path, "--dry-run")
	require.Contains(t, r.stdout, "nightly  would be created\n")
	require.Contains(t, s.run("periodic", "list").stderr, "is not set up", "nothing was written")

	r = s.ok("periodic", "apply", "-f", path)
	require.Contains(t, r.stdout, "nightly  created (version 1); disabled; to let it fire: mscheduler periodic enable nightly\n")
	require.Contains(t, r.stdout, "  + cron: 0 30 2 * * *\n")
	require.Contains(t, r.stdout, "  + start_at: 2026-01-01T13:00:00Z\n")
	require.Contains(t, r.stdout, "  + args.ids: [1, 12345678901234567]\n")
	require.Contains(t, r.stdout, "acme/every hour  created (version 1), next ")
	require.Contains(t, r.stderr, "no process decides ticks")
	require.Equal(t, "nightly  unchanged (version 1)\nacme/every hour  unchanged (version 1), next ", strings.Split(s.ok("periodic", "apply", "-f", path).stdout, "20")[0])

	r = s.ok("periodic", "list")
	require.Regexp(t, `(?m)^nightly +0 30 2 \* \* \* +America/New_York +report +never enabled +- +- +0 +0$`, r.stdout)
	require.Regexp(t, `(?m)^acme/every hour +0 0 \* \* \* \* +UTC +exec +enabled +20`, r.stdout)
	require.NotContains(t, s.ok("periodic", "list", "--tenant", "acme").stdout, "nightly")
	require.Contains(t, s.ok("periodic", "list", "--name", "night").stdout, "nightly")
	require.NotContains(t, s.ok("periodic", "list", "--name", "nightx").stdout, "nightly")
	require.NotContains(t, s.ok("periodic", "list", "--name", "night", "--tenant", "acme").stdout, "nightly")

	// What list writes can be applied, and changes nothing.
	again := s.file(s.ok("periodic", "list", "-o", "yaml").stdout)
	require.Equal(t, 3, strings.Count(s.ok("periodic", "apply", "-f", again).stdout, "  unchanged (version 1)"))

	var shown struct {
		ID, Cron, Status string
		Task             struct {
			Args    map[string]any
			Options map[string]any
		}
	}
	s.ok("periodic", "show", "nightly", "-o", "json").json(&shown)
	require.Equal(t, "0 30 2 * * * new", shown.Cron+" "+shown.Status)
	require.Equal(t, "2026-01-31", shown.Task.Args["day"], "a date is text")
	require.EqualValues(t, 600_000, shown.Task.Options["execution_timeout_ms"])
	age := regexp.MustCompile(`\((just now|\S+ ago)\)`) // passes between the two
	require.Equal(t, age.ReplaceAllString(s.ok("periodic", "show", "nightly").stdout, ""), age.ReplaceAllString(s.ok("periodic", "show", shown.ID).stdout, ""), "by id, too")
	s.fails(ExitNotFound, []string{"no such periodic rule", "without --tenant"}, "periodic", "show", "every hour")
	s.fails(ExitNotFound, []string{"no such periodic rule", `--cron "0 0 2 * * *"`}, "periodic", "preview", "0 0 2 * * *")
	require.Regexp(t, `(?m)^next +20\d\d-.*Z \(in `, s.ok("periodic", "show", "every hour", "--tenant", "acme").stdout)

	require.Regexp(t, `^nightly  enabled, next 20\d\d-\d\d-\d\d 02:30:00-0[45]:00 \(in `, s.ok("periodic", "enable", "nightly").stdout)
	require.Equal(t, "nightly  disabled: holidays\n", s.ok("periodic", "disable", "nightly", "--note", "holidays").stdout)
	require.Regexp(t, `(?m)^state +disabled: holidays, since 20`, s.ok("periodic", "show", "nightly").stdout)

	changed := s.file("name: nightly\nenabled: true\ntimezone: America/New_York\ncron: 0 3 * * *\ntype: report\n")
	r = s.ok("periodic", "apply", "-f", changed)
	require.Contains(t, r.stdout, "nightly  changed (version 2), next ")
	require.Contains(t, r.stdout, "  - overlap: SKIP\n  + overlap: ALLOW\n")
	require.Contains(t, r.stdout, "  - enabled: false\n  + enabled: true\n")
	s.fails(ExitRefused, []string{"version 2", "is for 1"}, "periodic", "apply", "-f", s.file("{name: nightly, version: 1, cron: '@daily', type: t}"))

	s.fails(ExitUsage, []string{"It is enabled", "--yes"}, "periodic", "delete", "nightly")
	require.Equal(t, "nightly  deleted; its runs: mscheduler periodic runs "+shown.ID+"\n", s.ok("periodic", "delete", "nightly", "--yes").stdout)
	s.fails(ExitNotFound, []string{"no such periodic rule: nightly"}, "periodic", "enable", "nightly")
	require.Contains(t, s.ok("periodic", "runs", shown.ID).stderr, "no run", "its records are found by its id")
	require.Contains(t, s.ok("periodic", "apply", "-f", changed).stdout, "nightly  created (version 1)", "its name is free")
}

func TestAFileOfRulesThatIsWrongIsRefusedWholeWithItsLines(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	const good = "name: good\ncron: '@daily'\ntype: t\n---\n"
	for content, said := range map[string][]string{
		good + "name: x\ncron_expr: '@daily'\nretry: {}\n": {"types.yaml:6:1: cron_expr is not known; use cron", "types.yaml:7:1: retry is not known; use options: {retry: ...}"},
		good + "name: x\ncron: 0 0 30 2 *\ntype: t\n":      {"types.yaml:6:7: cron", "can never fire"},
		good + "name: x\ncron: '@daily'\ntype: a/b\ntimezone: Mars/One\noverlap: maybe\n": {
			"types.yaml:7:7: type is", "types.yaml:8:11: timezone", `types.yaml:9:10: overlap is "maybe"`,
		},
		good + "name: good\ncron: '@daily'\ntype: t\n":                               {"types.yaml:5:1: good is defined twice, first at ", "types.yaml:1:1"},
		good + "name: x\ncron: '@daily'\ntype: t\nend_at: soon\n":                    {`types.yaml:8:9: end_at is "soon"`},
		good + "name: x\ncron: '@daily'\ntype: t\nend_at: 2020-01-01\n":              {"types.yaml:6:7: cron never fires before end_at"},
		good + "name: x\ncron: '@daily'\ntype: http\nargs: {uri: y}\n":               {"types.yaml:8:", "args.uri"},
		good + "name: x\ncron: '@daily'\ntype: http\n":                               {"types.yaml:7:7: args.url is missing; want an http or https URL"},
		good + "name: x\ncron: '@daily'\ntype: http\nargs: {}\n":                     {"types.yaml:8:7: args.url is missing"},
		good + "name: x\ncron: '@daily'\ntype: t\nargs: {a: 1, a: 2}\n":              {"types.yaml:8:", `"a" already defined`},
		good + "name: x\ncron: '@daily'\ntype: t\nargs: &a {b: *a}\n":                {"types.yaml:8:", "*a: no value before it"},
		good + "name: x\ncron: '@daily'\ntype: t\nargs: {a: .inf}\n":                 {"types.yaml:8:", "not a JSON value"},
		good + "name: x\ncron: '@daily'\ntype: t\ncatch_up: {mode: SOME, cap: -1}\n": {"types.yaml:8:18: catch_up.mode", "types.yaml:8:29: catch_up.cap"},
		good + "name: x\ncron: '@daily'\ntype: t\noptions: {expires_at: 2026-01-01, retry: {max_errors: -1}}\n": {
			"types.yaml:8:23: expires_at is ", "end_at for the rule's end", "types.yaml:8:55: retry.max_errors is -1",
		},
		good + "cron: '@daily'\ntype: t\n": {"types.yaml:5:1: name has 0 bytes"},
		"":                                 {"there are no periodic rules"},
	} {
		s.fails(ExitUsage, said, "periodic", "apply", "-f", s.file(content))
	}
	r := s.ok("periodic", "list")
	require.Empty(t, r.stdout, "nothing was written by any of them")
	require.Contains(t, r.stderr, "no rule")
	s.fails(ExitUsage, []string{"want -f FILE"}, "periodic", "apply")
	s.fails(ExitUsage, []string{"require --dry-run"}, "periodic", "apply", "-f", "x", "--days", "3")
	s.fails(ExitUsage, []string{"--days is 0"}, "periodic", "apply", "-f", "x", "--dry-run", "--days", "0")
	s.fails(ExitUsage, []string{`--run-takes is "x"; want a duration`}, "periodic", "apply", "-f", "x", "--dry-run", "--run-takes", "x")
}

func TestDryRunShowsWhatAChangeMeansTickByTick(t *testing.T) {
	s := newSession(t)
	s.ok("periodic", "apply", "-f", s.file("name: n\ncron: 0 * * * *\ntype: t\noverlap: SKIP\n"))
	changed := s.file("name: n\ncron: 0 * * * *\ntype: t\nmax_concurrency: 1\n")
	r := s.ok("periodic", "apply", "-f", changed, "--dry-run", "--days", "1", "--run-takes", "90m")
	require.Contains(t, r.stdout, "n  would be changed (version 1)\n  - overlap: SKIP\n  + overlap: ALLOW\n")
	require.Contains(t, r.stdout, "a run took 1h 30m (as --run-takes says)")
	require.Regexp(t, `(?m)^ +come +24 +24 +24 +24$`, r.stdout)
	require.Regexp(t, `(?m)^ +run +12 +24 +12 +24$`, r.stdout)
	require.Regexp(t, `(?m)^ +are skipped, overlap +12 +0 +12 +0$`, r.stdout)
	require.Regexp(t, `(?m)^ +the longest +0 +11h 30m +0 +11h 30m$`, r.stdout)
	require.Regexp(t, `(?m)^ +20\d\d-.* +skipped, overlap +runs after 30m$`, r.stdout)
	require.Contains(t, r.stdout, "46 ticks fare differently", "all but the first of each day")
	require.Contains(t, s.ok("periodic", "apply", "-f", changed, "--dry-run", "--days", "1").stdout, "nothing is recorded")

	var v struct {
		Rules []struct {
			Result   string
			Forecast struct {
				Differing   int
				Differences []struct{ Nominal, Stored, Changed string }
				Last        struct {
					Stored, Changed struct{ Ticks, Runs int }
				}
			}
		}
		DryRun bool `json:"dry_run"`
	}
	s.ok("periodic", "apply", "-f", changed, "--dry-run", "--days", "1", "--run-takes", "90m", "-o", "json").json(&v)
	require.True(t, v.DryRun)
	require.Equal(t, "changed", v.Rules[0].Result)
	require.Equal(t, 46, v.Rules[0].Forecast.Differing)
	require.Len(t, v.Rules[0].Forecast.Differences, 10)
	require.Equal(t, 12, v.Rules[0].Forecast.Last.Stored.Runs)
	require.Equal(t, 24, v.Rules[0].Forecast.Last.Changed.Runs)
	require.Contains(t, s.ok("periodic", "list", "-o", "yaml").stdout, "overlap: SKIP", "nothing was written")
}

func TestDryRunSaysThatARuleHasTooManyTicksForAllDays(t *testing.T) {
	s := newSession(t)
	often := s.file("name: n\ncron: '*/20 * * * * *'\ntype: t\n")
	r := s.ok("periodic", "apply", "-f", often, "--dry-run", "--days", "5")
	require.Contains(t, r.stdout, "LAST 4D 15H")
	require.Contains(t, r.stdout, "    (shortened from 5d: a rule has more than 20000 ticks in that time)\n")
	require.NotContains(t, s.ok("periodic", "apply", "-f", often, "--dry-run", "--days", "4").stdout, "shortened")
}

func TestPreviewShowsWhatChangesOfClocksDo(t *testing.T) {
	s := newSession(t)
	s.uri = "" // no database is needed
	args := []string{"periodic", "preview", "--cron", "30 2 * * *", "--timezone", "America/New_York", "--from", "2026-03-07T12:00:00Z", "-n", "2"}
	out := s.ok(args...).stdout
	require.Regexp(t, `(?m)^2026-03-08 03:00:00-04:00 +Sun +2026-03-08 07:00:00Z +(in \S.*|\S.* ago) +yes +02:30:00 does not exist that day: fires after the gap$`, out)
	require.Regexp(t, `(?m)^2026-03-09 02:30:00-04:00 +Mon +2026-03-09 06:30:00Z +(in \S.*|\S.* ago) +yes +-$`, out)
	args[7] = "2d"
	require.Regexp(t, `(?m)^LOCAL +UTC +FROM NOW +FIRES +CLOCK CHANGE\n.* in [23]d .*\n.* in [34]d`, s.ok(args...).stdout, "not from there")
	args[7] = "2026-03-07T12:00:00Z"
	require.Regexp(t, `(?m)^2026-03-08 .* no +02:30:00 does not exist that day: skipped$`, s.ok(append(args, "--gap", "skip")...).stdout)
	var v struct {
		Ticks []struct {
			UTC, Local, Note string
			Fires            bool
		}
	}
	s.ok(append(args, "-o", "json")...).json(&v)
	require.Len(t, v.Ticks, 2)
	require.Equal(t, "2026-03-08T03:00:00-04:00", v.Ticks[0].Local)
	for _, wrong := range [][]string{
		{"periodic", "preview"}, {"periodic", "preview", "a", "--cron", "@daily"}, {"periodic", "preview", "--timezone", "UTC"},
	} {
		s.fails(ExitUsage, []string{"requires the name of a rule, or --cron"}, wrong...)
	}
	s.fails(ExitUsage, []string{"cron", "timezone"}, "periodic", "preview", "--cron", "x", "--timezone", "y")
}

// runs is a page of `periodic runs` as JSON.
type runsPage struct {
	Runs []struct {
		ID, Status, Reason, Nominal string
		TaskID                      string `json:"task_id"`
		Manual                      bool
		Ticks                       int
	}
	Next string
}

func (s *session) runsOf(args ...string) (p runsPage) {
	s.t.Helper()
	s.ok(append([]string{"periodic", "runs", "-o", "json"}, args...)...).json(&p)
	return p
}

func TestRunsAreTriggeredBackfilledListedAndCancelled(t *testing.T) {
	s := newSession(t)
	s.ok("periodic", "apply", "-f", s.file("name: n\ncron: '@hourly'\ntype: t\nmax_concurrency: 1\n"))
	out := s.ok("periodic", "trigger", "n", "--request", "r1").stdout
	require.Regexp(t, `^\w{26}!r1  SCHEDULED  task t/\w{26}!r1\n$`, out)
	require.Equal(t, out, s.ok("periodic", "trigger", "n", "--request", "r1").stdout, "once")
	require.Contains(t, s.ok("periodic", "trigger", "n", "--request", "r2").stdout, "!r2  QUEUED\n")

	require.Regexp(t, `^n  3 runs from `, s.ok("periodic", "backfill", "n", "--from", "2026-01-01", "--to", "2026-01-01 03:00", "--request", "jan").stdout)
	require.Regexp(t, `has no tick from`, s.ok("periodic", "backfill", "n", "--from", "2026-01-01 00:01", "--to", "2026-01-01 00:02").stdout)
	s.fails(ExitUsage, []string{"requires --from"}, "periodic", "backfill", "n")
	s.fails(ExitUsage, []string{"from is 2025-01-01T00:00:00Z; more than 1000 ticks lie between it and 2026-01-01T00:00:00Z"}, "periodic", "backfill", "n", "--from", "2025-01-01", "--to", "2026-01-01")

	all := s.runsOf("n")
	require.Len(t, all.Runs, 5)
	require.True(t, all.Runs[0].Manual)
	first := s.runsOf("n", "--limit", "2")
	require.Len(t, first.Runs, 2)
	require.Equal(t, all.Runs[2:], s.runsOf("n", "--after", first.Next).Runs, "pages join")
	require.Len(t, s.runsOf("n", "--from", "2026-01-01", "--to", "2026-01-01 02:00").Runs, 2)
	require.Len(t, s.runsOf("n", "--status", "queued").Runs, 4)
	require.Contains(t, s.ok("periodic", "runs", "n", "--limit", "2").stderr, "--after '"+first.Next+"'")
	table := s.ok("periodic", "runs", "n").stdout
	require.Regexp(t, `(?m)^TICK +STATUS +LATE +TOOK +ATTEMPT +WHY +RUN$`, table)
	require.Regexp(t, `(?m)^2026-01-01 02:00:00Z +QUEUED +- +- +1 +by hand +\w+@2026-01-01T02:00:00Z!jan$`, table)

	var waits string
	for _, run := range all.Runs {
		if strings.HasSuffix(run.ID, "02:00:00Z!jan") {
			waits = run.ID
		}
	}
	require.Equal(t, waits+"  cancel requested\n", s.ok("periodic", "cancel", waits).stdout)
	s.fails(ExitRefused, []string{"neither runs nor waits"}, "periodic", "cancel", waits)
	require.Len(t, s.runsOf("n", "--status", "CANCELED").Runs, 1)
	s.fails(ExitUsage, []string{`run is "x"`}, "periodic", "cancel", "x")
	s.fails(ExitUsage, []string{"requires the ids of runs"}, "periodic", "cancel")
	s.fails(ExitUsage, []string{`--status is "Done"`}, "periodic", "runs", "n", "--status", "Done")
	s.fails(ExitUsage, []string{"--limit is 0"}, "periodic", "runs", "n", "--limit", "0")
	s.fails(ExitNotFound, []string{"no run x"}, "periodic", "runs", "n", "--after", "x")
	s.fails(ExitUsage, []string{"3 runs wait"}, "periodic", "delete", "n")
}

// Whether the rule keeps records of it or not, who triggers a run learns that it does not come.
func TestATriggeredRunThatIsSkippedSaysSoAndFails(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSession(t)
	for _, log := range []string{"none", "trigger_log", "trans_log"} {
		s.ok("periodic", "apply", "-f", s.file("name: "+log+"\ncron: '@hourly'\ntype: t\nmax_concurrency: 1\nconcurrency: SKIP\nlog: "+log+"\n"))
		require.Regexp(t, `^\w{26}!r1  \w+  task t/\w{26}!r1\n$`, s.ok("periodic", "trigger", log, "--request", "r1").stdout)
		r := s.fails(ExitRefused, nil, "periodic", "trigger", log, "--request", "r2")
		require.Regexp(t, `^\w{26}!r2  SKIPPED, concurrency: the limit of running or waiting runs was reached\n$`, r.stdout)
		require.Regexp(t, `^\w{26}!r3  \w+  task `, s.ok("periodic", "trigger", log, "--request", "r3", "--force").stdout)
		r = s.fails(ExitRefused, nil, "periodic", "trigger", log, "--request", "r4", "-o", "json")
		var out struct{ Status, Reason string }
		r.json(&out)
		require.Equal(t, "SKIPPED concurrency", out.Status+" "+out.Reason)
	}
	// One that has ended, of which the rule knows no more.
	_, _, stop := s.worker("--periodic")
	s.ok("periodic", "apply", "-f", s.file("name: quick\ncron: '@yearly'\ntype: exec\nargs: {argv: ['true']}\nlog: none\n"))
	s.ok("periodic", "trigger", "quick", "--request", "r")
	s.eventually("the run to end", func() bool { return !strings.Contains(s.ok("periodic", "show", "quick").stdout, "runs now") })
	require.Regexp(t, `!r  SUCCESS  task exec/`, s.ok("periodic", "trigger", "quick", "--request", "r").stdout)
	require.Equal(t, ExitOK, stop().code)
}

func TestARuleThatCannotBeReadIsNamedAndTheOthersAreListed(t *testing.T) {
	s := newSession(t)
	for _, name := range []string{"a", "b", "c"} {
		s.ok("periodic", "apply", "-f", s.file("tenant: acme\nname: "+name+"\ncron: '@hourly'\ntype: t\n"))
	}
	s.setRule("b", bson.D{{Key: "max_concurrency", Value: "many"}})
	said := []string{`("acme/b") cannot be read`, "max_concurrency"}
	r := s.fails(ExitFailed, said, "periodic", "list")
	require.Regexp(t, `(?m)^acme/a [^$]*^acme/c `, r.stdout)
	require.Equal(t, 2, strings.Count(s.fails(ExitFailed, said, "periodic", "list", "-o", "yaml").stdout, "cron:"))
	require.Contains(t, s.fails(ExitFailed, said, "periodic", "list", "--tenant", "acme").stdout, "acme/c")
	s.setRule("a", bson.D{{Key: "max_concurrency", Value: "many"}})
	s.setRule("c", bson.D{{Key: "max_concurrency", Value: "many"}})
	r = s.fails(ExitFailed, []string{`("acme/a")`, `("acme/b")`, `("acme/c")`}, "periodic", "list")
	require.NotContains(t, r.stderr, "no rule;")
}

// The rule itself calls a run RUNNING from its decision on.
func TestALastRunThatNoWorkerTookIsScheduled(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSession(t)
	_, _, stop := s.start("work", "--worker-id", "engine", "--periodic")
	s.ok("periodic", "apply", "-f", s.file("name: n\nenabled: true\ncron: '* * * * * *'\nmax_runs: 1\ntype: nobody\n"))
	s.eventually("a run", func() bool { return len(s.runsOf("n").Runs) == 1 })
	require.Regexp(t, `(?m)^n .* SCHEDULED (just now|.* ago) +1 +0$`, s.ok("periodic", "list").stdout)
	require.Regexp(t, `(?m)^last run +SCHEDULED, of 20`, s.ok("periodic", "show", "n").stdout)
	require.Equal(t, ExitOK, stop().code)
}

func TestAWorkerWithPeriodicFiresRulesAndOneWithoutDoesNotClaimTo(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSession(t)
	_, _, stop := s.worker("--periodic")
	s.ok("periodic", "apply", "-f", s.file("name: n\nenabled: true\ncron: '* * * * * *'\ntype: exec\nargs: {argv: ['true']}\n"))
	s.eventually("two runs that succeeded", func() bool { return len(s.runsOf("n", "--status", "SUCCESS").Runs) >= 2 })
	require.NotContains(t, s.ok("periodic", "list").stderr, "no process decides ticks")
	r := s.ok("periodic", "runs", "n", "--status", "SUCCESS", "--limit", "1")
	require.Regexp(t, `(?m)^20\d\d-.*Z +SUCCESS +\d+.* +\d+.* +1 +- +\w+@20`, r.stdout)
	require.Contains(t, s.ok("periodic", "apply", "-f", s.file("name: n\ncron: '*/2 * * * * *'\ntype: t\n"), "--dry-run").stdout, "recorded run")
	require.Equal(t, ExitOK, stop().code, "both stop gracefully")
	require.Contains(t, s.ok("periodic", "disable", "n").stdout, "n  disabled\n")
	require.Contains(t, s.ok("periodic", "list").stderr, "no process decides ticks", "the engine said that it stopped")
}

func TestTheRuleOfTheReadmeCanBeApplied(t *testing.T) {
	s := newSession(t)
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(readme), "```yaml\n")
	require.True(t, found)
	rule, _, _ := strings.Cut(after, "```")
	require.Regexp(t, `^hello  created \(version 1\), next 20`, s.ok("periodic", "apply", "-f", s.file(rule)).stdout)
	require.Contains(t, s.ok("periodic", "preview", "hello", "-n", "1").stdout, "yes")
}
