package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// funcs are what templates call.
func (d *Dashboard) funcs() template.FuncMap {
	return template.FuncMap{
		"static": d.staticURL,
		// url is that of a page: url "/tasks" "status" "Pending".
		"url": func(path string, pairs ...string) string { return d.config.Mount + base + path + queryOf(pairs) },
		// api is that of an operation, for scripts.
		"api":        func(path string) string { return d.config.Mount + base + "/api" + path },
		"path":       pathOf,
		"idPath":     idPath,
		"taskURL":    func(id any) string { return d.config.Mount + base + "/tasks" + idPath(text(id), 3) },
		"text":       text,
		"list":       list,
		"number":     number,
		"state":      stateOf,
		"duration":   duration,
		"since":      func(from, to any) string { return between(text(from), text(to)) },
		"json":       indented,
		"clockError": clockError,
		"tree":       treeOf,
		"has":        func(values []string, v string) bool { return slices.Contains(values, v) },
		"dict":       dict,
		"keys":       func(m any) []string { return slices.Sorted(maps.Keys(object(m))) },
		"join":       func(values any) string { return strings.Join(texts(values), ", ") },
		"query":      withQuery,
		"sections":   sectionsOf,
		"wall":       wall,
		"short":      short,
		"isLate":     func(ms any) bool { return integer(ms) >= lateRun },
		"add":        func(a, b int) int { return a + b },
	}
}

func queryOf(pairs []string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// withQuery is the page itself with other values of its query; "" takes one away.
func withQuery(q url.Values, pairs ...string) string {
	out := url.Values{}
	maps.Copy(out, q)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			out.Del(pairs[i])
		} else {
			out.Set(pairs[i], pairs[i+1])
		}
	}
	return "?" + out.Encode()
}

// dict makes the argument of a component.
func dict(pairs ...any) (map[string]any, error) {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("key %d is %T", i, pairs[i])
		}
		out[key] = pairs[i+1]
	}
	return out, nil
}

// text is a scalar of a document as text; "" for one that is absent.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

func texts(v any) (out []string) {
	for _, one := range list(v) {
		out = append(out, text(one))
	}
	return out
}

// list is an array of a document; nil for one that is absent.
func list(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case []string:
		out := make([]any, len(v))
		for i := range v {
			out[i] = v[i]
		}
		return out
	}
	return nil
}

// object is an object of a document; nil for one that is absent.
func object(v any) document {
	o, _ := v.(map[string]any)
	return o
}

// integer is a number of a document; 0 for one that is absent.
func integer(v any) int64 {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64()
		return int64(f)
	case int64:
		return v
	case int:
		return int64(v)
	case float64:
		return int64(v)
	}
	return 0
}

// number is a count with its thousands apart.
func number(v any) string {
	digits := strconv.FormatInt(integer(v), 10)
	var b strings.Builder
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// instant is a time of a document.
func instant(v any) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, text(v))
	return t, err == nil
}

// clockError is by how many milliseconds a clock is ahead of the database's, in words.
func clockError(ms any) string {
	switch n := integer(ms); {
	case n > 0:
		return duration(n) + " ahead of the database's"
	case n < 0:
		return duration(-n) + " behind the database's"
	default:
		return "same as the database's"
	}
}

// wall is a time of a document as a clock of its zone shows it.
func wall(v any) string {
	t, ok := instant(v)
	if !ok {
		return text(v)
	}
	return t.Format("Mon 2006-01-02 15:04")
}

// duration is a number of milliseconds as people say it: 340 ms, 12.5 s, 3 min 20 s, 2 h 5 min, 3 d 4 h.
func duration(ms any) string {
	return span(time.Duration(integer(ms)) * time.Millisecond)
}

func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func two(n int, unit string, rest int, small string) string {
	if rest == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, rest, small)
}

func between(from, to string) string {
	a, ok := instant(from)
	b, okay := instant(to)
	if !ok || !okay {
		return ""
	}
	return span(b.Sub(a))
}

// indented is a value as JSON.
func indented(v any) string {
	return written(v, "  ")
}

// written is a value as JSON with < > and & as they are: templates escape them, and people search for them.
func written(v any, indent string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// short is a long text with its middle left out.
func short(n int, v any) string {
	r := []rune(text(v))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n*2/3]) + "…" + string(r[len(r)-n/3:])
}

// look is how a state is shown: never by colour alone.
type look struct {
	Word  string
	Shape string
	Class string
}

// looks of statuses of tasks, runs, flows, nodes and plans. ERROR is the end of a node; a task in Error is tried again.
var looks = map[string][2]string{
	"new": {"○", "wait"}, "init": {"○", "wait"}, "wait": {"○", "wait"}, "pub": {"○", "wait"}, "ready": {"◔", "wait"}, "delayed": {"◷", "wait"},
	"executing": {"▶", "run"}, "running": {"▶", "run"}, "parked": {"◷", "run"}, "dispatched": {"▶", "run"}, "begin": {"▶", "run"},
	"success": {"✓", "good"}, "completed": {"✓", "good"}, "manuallyprocessed": {"✓", "off"}, "finish": {"✓", "good"}, "succeeded": {"✓", "good"}, "open": {"✓", "good"}, "alive": {"✓", "good"}, "active": {"✓", "good"}, "no worker": {"!", "bad"}, "enabled": {"✓", "good"}, "ok": {"✓", "good"},
	"warn": {"!", "ask"}, "fail": {"✗", "bad"}, "failure": {"✗", "bad"}, "error": {"↻", "bad"}, "failed": {"✗", "bad"}, "failing": {"✗", "bad"}, "dead": {"✗", "bad"}, "refused": {"✗", "bad"}, "late": {"✗", "bad"}, "ERROR": {"✗", "bad"},
	"scheduled": {"◷", "wait"}, "queued": {"◔", "wait"}, "never enabled": {"○", "wait"}, "waiting_callback": {"⇄", "run"}, "timeout": {"✗", "bad"}, "failed_timeout": {"✗", "bad"}, "plan_error": {"✗", "bad"}, "no_worker": {"!", "ask"},
	"asked to drain": {"◷", "ask"}, "draining": {"▽", "ask"}, "drained": {"■", "ask"},
	"pending": {"!", "ask"}, "suspend": {"!", "ask"}, "suspended": {"!", "ask"}, "paused": {"❚❚", "ask"}, "disabled": {"❚❚", "off"},
	"cancelled": {"⊘", "off"}, "canceled": {"⊘", "off"}, "closed": {"⊘", "off"}, "skipped": {"⊘", "off"}, "skip": {"⊘", "off"}, "revoked": {"⊘", "off"}, "expired": {"⊘", "off"}, "gone": {"⊘", "off"}, "over": {"■", "off"},
}

func stateOf(v any) look {
	word := text(v)
	for _, known := range []string{word, strings.ToLower(word)} {
		if l, ok := looks[known]; ok {
			return look{Word: word, Shape: l[0], Class: l[1]}
		}
	}
	return look{Word: word, Shape: "•", Class: "off"}
}

// branch is a value of a document as a tree of rows that can be folded.
type branch struct {
	Key      string
	Text     string // of a scalar, as JSON
	Open     string // of an object or array: its brackets and size
	Branches []branch
}

// mostBranches bounds the tree of one value. The last row says that it is cut; Copy has all of it.
const mostBranches = 2000

func treeOf(v any) []branch {
	left := mostBranches
	return branches(v, &left)
}

func branches(v any, left *int) (out []branch) {
	add := func(key string, child any) bool {
		if *left--; *left <= 0 {
			if *left == 0 {
				out = append(out, branch{Text: "… the rest is not shown; Copy has all of it"})
			}
			return false
		}
		b := branch{Key: key}
		switch c := child.(type) {
		case map[string]any:
			b.Open, b.Branches = fmt.Sprintf("{%d}", len(c)), branches(c, left)
		case []any:
			b.Open, b.Branches = fmt.Sprintf("[%d]", len(c)), branches(c, left)
		default:
			b.Text = indented(child)
		}
		out = append(out, b)
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !add(key, v[key]) {
				break
			}
		}
	case []any:
		for i, child := range v {
			if !add(strconv.Itoa(i), child) {
				break
			}
		}
	case nil:
	default:
		add("", v)
	}
	return out
}
