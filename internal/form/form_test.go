package form

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// said are the messages of an error, one for each mistake.
func said(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestEveryMistakeOfAFileIsNamedWithItsPlace(t *testing.T) {
	for content, want := range map[string][]string{
		"code: t\nname: x\ncolour: red\nretry:\n  max_error: 3\n": {
			"f.yaml:3:1: colour is not known in a task type; want code, name, category, description, version, paused, timeout, retry, need_manual, max_lapses, max_errors_per_worker, ping_interval, ...",
			"f.yaml:5:3: retry.max_error is not known here; want strategy, interval, sequence, factor, max_interval, jitter, max_errors, local",
		},
		"code: good\n---\ncode: t\ntimeout: soon\n":                {`f.yaml:4:10: timeout is "soon"; want a duration such as 500ms, 30s, 5m, 2h or 7d`},
		"code: t\nretention: 7\n":                                  {"f.yaml:2:12: retention is 7; want a duration such as"},
		"code: t\nretention_ms: 7d\n":                              {`f.yaml:2:15: retention_ms is "7d"; want a whole number of milliseconds`},
		"code: t\ntimeout: 5m\nexecution_timeout_ms: 1\n":          {"f.yaml:3:1: execution_timeout_ms is given twice; first as timeout"},
		"- code: a\n- code: b\n  max_running: many\n":              {`f.yaml:3:16: max_running is "many"; want a whole number`},
		"code: t\ncode: u\n":                                       {`f.yaml:2:1: mapping key "code" already defined at [1:1]`},
		"code: [\n":                                                {"f.yaml:1:7: sequence end token ']' not found"},
		"name: n\ncron: * * * * *\n":                               {"f.yaml:2:15: ", `quote a value that begins with * @ or {, such as cron: "* * * * *"`},
		"name: n\ncron: @daily\n":                                  {"f.yaml:2:7: '@' is a reserved character; quote a value"},
		"name: *n\n":                                               {"f.yaml:1:7: *n: no value before it has the anchor &n"},
		"":                                                         {"f.yaml:1:1: there are no task types"},
		"# nothing\n":                                              {"f.yaml:1:1: there are no task types"},
		"code: a\n---\n# nothing\n---\ncode: b\n":                  {"f.yaml:2:1: the document is empty"},
		"---\n---\ncode: b\n":                                      {"f.yaml:1:1: the document is empty"},
		"email.send\n":                                             {`f.yaml:1:1: is "email.send"; want fields: code, name,`},
		"code: t\nretry: often\n":                                  {`f.yaml:2:8: retry is "often"; want fields: strategy, interval,`},
		"code: t\nretry: {sequence: 1m}\n":                         {`f.yaml:2:19: retry.sequence is "1m"; want a list`},
		"code: t\nretry: {sequence: [1m, x]}\n":                    {`f.yaml:2:24: retry.sequence[1] is "x"; want a duration`},
		"code: t\nname: {x: y}\n":                                  {"f.yaml:2:8: name has fields; want text"},
		"code: t\nneed_manual: 7\n":                                {"f.yaml:2:14: need_manual is 7, a number; want true or false"},
		"code: t\nrate_limit:\n":                                   {"f.yaml:2:1: rate_limit has no value; set a value or omit the field"},
		"code: t\nrate_limit: {count: 5, per: null}\n":             {"rate_limit.per has no value"},
		"- code: t\n  key_limit: ~\n":                              {"f.yaml:2:3: key_limit has no value"},
		"code: t\ntimeout: nan\n":                                  {`timeout is "nan"; want a duration`},
		"code: t\ntimeout: 1e300\n":                                {`timeout is 1e300; want a duration`},
		"code: t\nretry: {strategy: fixed, interval: 0}\n":         {"f.yaml:2:36: retry.interval is 0; want at least 1ms, or omit it for the default"},
		"code: t\nworkers: [w]\nconcurrent_workers: 2\n":           {"workers is not known; use specific_worker_ids", "concurrent_workers is not known; use concurrent_worker_count"},
		"code: t\nversion: !!int 3\n":                              {"f.yaml:2:10: tags such as !!int are not supported"},
		"? [a]\n: b\n":                                             {"f.yaml:2:1: found an invalid key for this map"},
		strings.Repeat("[", 500) + strings.Repeat("]", 500) + "\n": {"nested too deeply"},
	} {
		docs, err := Read[Type]("f.yaml", []byte(content), "a task type", "task types")
		require.ErrorIs(t, err, model.ErrInvalid, content)
		lines := said(err)
		for i, w := range want {
			require.Contains(t, lines[min(i, len(lines)-1)], w, "%q, of which was read %v", content, docs)
		}
	}
}

// The units of seed 000 are those of its documents: files of types.
func TestADurationIsANumberOnlyInAFileOfTypes(t *testing.T) {
	const options = "timeout: 5\nworker_timeout: 40\nretry: {sequence: [1, 2]}\n"
	docs, err := Read[Type]("f", []byte("code: t\n"+options+"rate_limit: {count: 5, per: 7}\n"), "", "")
	require.NoError(t, err)
	typ, err := docs[0].Form.Model()
	require.NoError(t, err)
	require.Equal(t, model.Options{ExecutionTimeout: 5 * time.Minute, WorkerTimeout: 40 * time.Second, Retry: &model.Retry{Sequence: []time.Duration{time.Second, 2 * time.Second}}}, typ.Options)
	require.Equal(t, 7*time.Second, typ.RateLimit.Per)

	indented := "options:\n  " + strings.ReplaceAll(strings.TrimSpace(options), "\n", "\n  ") + "\n"
	refused := func(err error, fields ...string) {
		t.Helper()
		for _, field := range fields {
			require.ErrorContains(t, err, field)
		}
		require.Equal(t, len(fields), strings.Count(err.Error(), "; want a duration such as 500ms, 30s, 5m, 2h or 7d"), "%v", err)
	}
	said := []string{"options.timeout is 5", "options.worker_timeout is 40", "options.retry.sequence[0] is 1", "options.retry.sequence[1] is 2"}
	_, err = Read[Rule]("f", []byte(indented), "", "")
	refused(err, said...)
	_, err = Read[Plan]("f", []byte("plan_exec_timeout: 90\n"+indented), "", "")
	refused(err, append(said, "plan_exec_timeout is 90")...)
	_, err = Read[Flow]("f", []byte("nodes:\n- id: a\n  options: {timeout: 5}\n"), "", "")
	refused(err, "nodes[0].options.timeout is 5")
	_, err = ReadJSON[Task]("body", 1, []byte(`{"options": {"worker_timeout": 5000}}`), "")
	refused(err, "options.worker_timeout is 5000")
	_, err = ReadJSON[Type]("body", 1, []byte(`{"timeout": 5}`), "")
	refused(err, "timeout is 5")
	for _, f := range Flags(&Options{}) {
		if f.Name == "timeout" || f.Name == "retry-sequence" {
			refused(f.Set("5"), "is 5")
		}
	}
}

func TestEveryMistakeOfALineOfJSONIsNamedWithItsPlace(t *testing.T) {
	for line, want := range map[string]string{
		`not json`:                         "f:7:2: not JSON: invalid character 'o' in literal null (expecting 'u')",
		`{"key": "n"`:                      "f:7:12: not JSON: it ends too early",
		``:                                 "f:7:1: not JSON: it ends too early",
		`{"key": "c", "prio": 1}`:          "f:7:14: prio is not known in a task; want type, key,",
		`{"key": "é", "prio": 1}`:          "f:7:14: prio is not known",
		`{"key": "c", "priority": "high"}`: `f:7:26: priority is "high"; want a whole number`,
		`{"key": 5}`:                       `f:7:9: key is 5, a number; want text`,
		`["g"]`:                            "f:7:1: has a list; want fields: type, key,",
		`{"key": "i"} {"key": "j"}`:        "f:7:14: there is more than one JSON value",
		`{"key": "i"} ]`:                   "f:7:14: there is more than one JSON value",
		`{"type": "foo", "type": "bar"}`:   "f:7:17: type is given twice; first as type",
		`{"options": {"max_lapses": 1, "MAX_LAPSES": 2}}`: "f:7:31: options.MAX_LAPSES is not known",
		`{"in_ms": "5s"}`: `f:7:11: in_ms is "5s"; want a whole number of milliseconds`,
		`{"in": 5}`:       `f:7:8: in is 5; want a duration`,
		`{"options": {"retry": {"local": {"interval_ms": 99999999999999999}}}}`: "f:7:49: options.retry.local.interval_ms is 99999999999999999; want a whole number of milliseconds",
		`{"options": {"expires_at": 17}}`:                                       "f:7:28: options.expires_at is 17, a number; want text",
		`{"options": {"concurrent_worker_count": 0}}`:                           "f:7:41: options.concurrent_worker_count is 0; want at least 1",
		strings.Repeat(`{"args":`, 500):                                         "nested too deeply",
	} {
		_, err := ReadJSON[Task]("f", 7, []byte(line), "a task")
		require.ErrorIs(t, err, model.ErrInvalid, line)
		require.Contains(t, err.Error(), want)
	}
	_, err := ReadJSON[Task]("f", 1, []byte("{\n \"held\": true,\n \"x\": 1, \"y\": 2}"), "a task")
	require.Len(t, said(err), 2)
	require.Contains(t, err.Error(), "f:3:2: x is not known")
	require.Contains(t, err.Error(), "f:3:10: y is not known")
}

func TestWhatARuleForbidsHasThePlaceOfItsField(t *testing.T) {
	docs, err := Read[Rule]("f.yaml", []byte("name: n\n---\nname: m\noptions:\n  retry:\n    max_errors: -1\n  callback: {security: {type: aksk, ak: a, sk: b}}\n"), "a rule", "rules")
	require.NoError(t, err)
	require.Len(t, docs, 2)
	for field, at := range map[string]string{
		"retry.max_errors": "f.yaml:6:17: ", "options.retry.local.count": "f.yaml:6:5: ", "callback.security.keys[0].sk": "f.yaml:7:25: ", "cron": "f.yaml:3:1: ", "": "f.yaml:3:1: ",
	} {
		require.Contains(t, docs[1].Locate(input.Invalid(field, "is wrong")).Error(), at, field)
	}
	require.EqualError(t, docs[0].Locate(os.ErrNotExist), "f.yaml:1:1: file does not exist")
	for text, at := range map[string]string{
		"name: n\ntype: http\n": "f.yaml:2:7: ", "name: n\ntype: http\nargs:\n  method: GET\n": "f.yaml:4:3: ", "name: n\n": "f.yaml:1:1: ",
	} {
		docs, err := Read[Rule]("f.yaml", []byte(text), "a rule", "rules")
		require.NoError(t, err)
		require.Contains(t, docs[0].Locate(input.Invalid("args.url", "is missing")).Error(), at, "the type wants it")
	}
	require.NoError(t, docs[0].Locate(nil))
}

// Whatever a form can say comes through the stored document, and through a file.
func TestAFormComesBackFromWhatIsStored(t *testing.T) {
	const types = `code: t
name: E-mails
category: mail
description: |-
  two
  lines
timeout: none
retry:
  strategy: sequence
  interval: 10s
  sequence:
    - 1s
    - 1h30m
  factor: 1.5
  max_interval: 1m
  jitter: -1
  max_errors: 0
  local:
    count: 2
    interval: 500ms
need_manual: false
max_lapses: 0
max_errors_per_worker: 3
ping_interval: 5s
worker_timeout: 1m30s
retention: 7d
callback:
  success:
    url: https://example.org/done?token=***
    method: PUT
  error:
    url: https://example.org/failed
  on_pending: true
  security:
    type: aksk
    keys:
      - ak: a
        sk: "***"
claim_by: tenant
max_running: 20
rate_limit:
  count: 100
  per: 1s
key_limit:
  max_running: 1
  rate_limit:
    count: 1
    per: 1d
`
	docs, err := Read[Type]("f", []byte(types), "", "")
	require.NoError(t, err)
	stored, err := docs[0].Form.Model()
	require.NoError(t, err)
	require.Equal(t, model.NoTimeout, stored.Options.ExecutionTimeout)
	require.Equal(t, new(0), stored.Options.Retry.MaxErrors, "0 is a value")
	out, err := YAML(TypeOf(&stored, false))
	require.NoError(t, err)
	require.Equal(t, types, out)

	const rule = `name: "yes"
tenant: acme
creator: ann
cron: 0 30 2 * * *
timezone: Europe/Berlin
dst:
  gap: skip
start_at: "2026-01-01T07:00:00Z"
max_runs: 3
jitter: 5s
http:
  url: https://example.org/{{run_id}}
  headers:
    a: "1"
    authorization: "***"
  body: "{\"a\":\"{{run_id}}\",\"b\":[1]}"
  timeout: 10s
  expect:
    - 200-204
    - 410
  keys:
    - ak: a
      sk: "***"
priority: 0
options:
  max_lapses: 1
  concurrent_worker_count: 2
  specific_worker_ids:
    - w1
  limit_key: k
overlap: SKIP
catch_up:
  mode: FULL
  window: 6h
run_retention: 30d
ext:
  b: 12345678901234567
  a:
    - 1.5
    - null
    - "1"
`
	rules, err := Read[Rule]("f", []byte(rule), "", "")
	require.NoError(t, err)
	spec, err := rules[0].Form.Spec()
	require.NoError(t, err)
	out, err = YAML(RuleOf(&spec))
	require.NoError(t, err)
	require.Equal(t, rule, out)
	require.Nil(t, Changes(rules[0].Form, RuleOf(&spec)))
	require.Equal(t, []string{"- overlap: SKIP", "+ overlap: ALLOW", "+ log: none"}, Changes(&Rule{Overlap: "SKIP"}, &Rule{Overlap: "ALLOW", Log: "none"}))
}

func TestAFileMayBeWrittenInManyWays(t *testing.T) {
	const a = `# one way
start_at: 2026-01-01 08:00
timezone: Europe/Berlin
catch_up: FULL
base: &base {retry: {strategy: fixed_period, interval: 10s}, timeout: 5m}
`
	const rest = "name: n\noptions:\n  <<: *base\n  timeout: 90s\nhttp: {url: x, expect: 2xx, body: {a: [0x10, 1_000, ~, true, 2026-01-31, .5]}}\nargs: 'x'\n"
	docs, err := Read[Rule]("f", []byte("\ufeff"+strings.Replace(a, "base: &base", "ext: &base", 1)+rest), "", "")
	require.NoError(t, err)
	spec, err := docs[0].Form.Spec()
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 1, 1, 7, 0, 0, 0, time.UTC), spec.StartAt)
	require.Equal(t, schedule.CatchUpFull, spec.CatchUp.Mode)
	require.Equal(t, 90*time.Second, spec.Options.ExecutionTimeout)
	require.Equal(t, &model.Retry{Strategy: model.RetryFixed, Interval: 10 * time.Second}, spec.Options.Retry)
	require.JSONEq(t, `{"a": [16, 1000, null, true, "2026-01-31", 0.5]}`, spec.HTTP.Body)

	jsonDocs, err := Read[Type]("f", []byte(`[{"code": "a", "execution_timeout_ms": 1500, "retry": {"sequence_ms": [1, 2]}}, {"code": "b\ud83d\ude00"}]`), "", "")
	require.NoError(t, err)
	typ, err := jsonDocs[0].Form.Model()
	require.NoError(t, err)
	require.Equal(t, 1500*time.Millisecond, typ.Options.ExecutionTimeout)
	require.Equal(t, []time.Duration{time.Millisecond, 2 * time.Millisecond}, typ.Options.Retry.Sequence)
	require.Equal(t, "b😀", jsonDocs[1].Form.Code)
}

func TestALineOfJSONIsATaskAndDefaultsFillIt(t *testing.T) {
	doc, err := ReadJSON[Task]("f", 1, []byte(`{"type":"t","args":{"b":1,"a":9007199254740993},"options":{"retry":{"max_errors":2},"callback":{"on_pending":true}}}`), "a task")
	require.NoError(t, err)
	defaults := &Task{Priority: new(3), Options: Options{
		Retry: &Retry{MaxErrors: new(5), Factor: new(3.0)}, MaxLapses: new(0), Callback: &Callback{Success: &CallbackTarget{URL: "x"}},
	}}
	Fill(doc.Form, defaults)
	it, err := doc.Form.Item(time.Now())
	require.NoError(t, err)
	require.Equal(t, `{"b":1,"a":9007199254740993}`, string(it.Args), "as it was written")
	o, err := doc.Form.Options.Model(time.UTC, time.Time{})
	require.NoError(t, err)
	require.Equal(t, model.Options{
		Retry: &model.Retry{MaxErrors: new(2), Factor: 3}, MaxLapses: new(0), Callback: &model.Callback{OnPending: true},
	}, o)
	require.Equal(t, 5, *defaults.Options.Retry.MaxErrors, "they are those of the next line, too")
}

func TestFlagsSayWhatAFileSays(t *testing.T) {
	task := &Task{}
	flags := map[string]*Flag{}
	for _, f := range Flags(task, "held") {
		flags[f.Name] = f
	}
	for _, given := range [][2]string{
		{"timeout", "90s"}, {"retry-sequence", "1s,10s"}, {"retry-sequence", "1m"}, {"need-manual", "true"}, {"max-errors", "0"},
		{"specific-worker-ids", ""}, {"at", "-5m"}, {"key", "007"}, {"retry-jitter", "-1"}, {"local-retries", "2"},
	} {
		require.NoError(t, flags[given[0]].Set(given[1]), given)
	}
	require.Equal(t, &Task{
		Key: new("007"), StartTime: new(Time("-5m")),
		Options: Options{
			ExecutionTimeout: new(Timeout(90 * time.Second)), NeedManual: new(true), SpecificWorkerIDs: []string{},
			Retry: &Retry{
				Sequence: []Duration{Duration(time.Second), Duration(10 * time.Second), Duration(time.Minute)}, MaxErrors: new(0), Jitter: new(-1.0),
				Local: &LocalRetry{Count: new(2)},
			},
		},
	}, task)
	require.Nil(t, flags["held"])
	require.Nil(t, flags["type"], "it has no help")
	for name, kind := range map[string]string{"timeout": "duration", "at": "time", "retry-sequence": "list", "priority": "int", "need-manual": "bool", "key": "string"} {
		require.Equal(t, kind, flags[name].Type())
	}
	for _, bad := range [][2]string{{"in", "soon"}, {"at", "tomorrow"}, {"priority", "x"}, {"retry-sequence", "1s,x"}, {"concurrent-worker-count", "0"}} {
		require.ErrorContains(t, flags[bad[0]].Set(bad[1]), "want ", bad)
	}
}

// The table of the package comment is what the fields say, and nothing more.
func TestTheTableOfDurationsIsThatOfTheForms(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	table := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^//\t([a-z_.]+) +([a-z_.]+_ms.*)$`).FindAllStringSubmatch(string(doc), -1) {
		for stored := range strings.SplitSeq(regexp.MustCompile(` \([^)]*\)`).ReplaceAllString(row[2], ""), ", ") {
			table[row[1][strings.LastIndexByte(row[1], '.')+1:]+" "+stored[strings.LastIndexByte(stored, '.')+1:]] = true
		}
	}
	forms := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for _, f := range fieldsOf(of) {
			if f.ms != "" {
				forms[f.name+" "+f.ms] = true
			}
			inner := of.FieldByIndex(f.index).Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				walk(inner)
			}
		}
	}
	walk(reflect.TypeFor[Task]())
	walk(reflect.TypeFor[Type]())
	walk(reflect.TypeFor[Rule]())
	walk(reflect.TypeFor[Plan]())
	require.Equal(t, forms, table)
}

// A field of a form that no document has would be read and lost.
func TestEveryFieldOfAFormHasItsFieldInTheDocument(t *testing.T) {
	own := map[string]bool{ // what is carried over by name elsewhere
		"Type.Paused": true, "Rule.Version": true, "Rule.Enabled": true, "CallbackSecurity.AK": true, "CallbackSecurity.SK": true,
	}
	var walk func(form, document reflect.Type)
	walk = func(form, document reflect.Type) {
		for form.Kind() == reflect.Pointer || form.Kind() == reflect.Slice {
			form = form.Elem()
		}
		for document.Kind() == reflect.Pointer || document.Kind() == reflect.Slice {
			document = document.Elem()
		}
		if form.Kind() != reflect.Struct || form.PkgPath() != reflect.TypeFor[Task]().PkgPath() {
			return
		}
		for i := range form.NumField() {
			f := form.Field(i)
			other, found := document.FieldByName(f.Name)
			require.True(t, found || own[form.Name()+"."+f.Name], "%s.%s is not in %s", form, f.Name, document)
			if found {
				walk(f.Type, other.Type)
			}
		}
	}
	walk(reflect.TypeFor[Type](), reflect.TypeFor[model.TaskType]())
	walk(reflect.TypeFor[Rule](), reflect.TypeFor[schedule.Spec]())
	walk(reflect.TypeFor[Plan](), reflect.TypeFor[repeat.Spec]())
}

func TestTimesAndDurations(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-02-01T10:00:00Z":      time.Date(2026, 2, 1, 10, 0, 0, 0, time.UTC),
		"2026-02-01T10:00:00+02:00": time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC),
		"2026-02-01 10:00":          time.Date(2026, 2, 1, 10, 0, 0, 0, time.UTC),
		"2026-02-01":                time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
		"5m":                        now.Add(5 * time.Minute),
		"-1.5d":                     now.Add(-36 * time.Hour),
	} {
		got, err := ParseTime(text, time.UTC, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), "%s: %v", text, got)
	}
	for _, text := range []string{"", "d", "1x", "nand", "1e300d", "2026-13-01", "tomorrow"} {
		_, err := ParseTime(text, time.UTC, now)
		require.Error(t, err, text)
	}
	_, err := ParseTime("5m", time.UTC, time.Time{})
	require.Error(t, err, "there is nothing that it counts from")
	for d, text := range map[time.Duration]string{0: "0s", 90 * time.Second: "1m30s", time.Hour: "1h", 48 * time.Hour: "2d", 500 * time.Millisecond: "500ms"} {
		require.Equal(t, text, Duration(d).String())
	}
}

// No text makes the readers fail in another way than by an error, and what they make of it can
// be written and read again.
func FuzzFiles(f *testing.F) {
	for _, seed := range []string{"name: n\ncron: '@daily'\n---\n- a: &x {b: 1}\n- <<: *x\n", `{"key": "n", "args": [1, {"a": null}]}`, "ext: |\n  a\n  b\n", "plan_id: 7\nplan_time: 09:30\nmessages: [null, {a: 1.5}]\nplan_exec_timeout: 5\n", "- - - ?\n", "a: {b: [}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := Read[Rule]("f", data, "", "")
		_, _ = ReadJSON[Task]("f", 1, data, "")
		plans, planErr := Read[Plan]("f", data, "", "")
		if planErr == nil {
			for _, d := range plans {
				text, err := YAML(d.Form)
				require.NoError(t, err)
				again, err := Read[Plan]("f", []byte(text), "", "")
				require.NoError(t, err, text)
				require.Nil(t, Changes(d.Form, again[0].Form), text)
			}
		}
		if err != nil {
			return
		}
		for _, d := range docs {
			text, err := YAML(d.Form)
			require.NoError(t, err)
			again, err := Read[Rule]("f", []byte(text), "", "")
			require.NoError(t, err, text)
			require.Nil(t, Changes(d.Form, again[0].Form), text)
		}
	})
}
