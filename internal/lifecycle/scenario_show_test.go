package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// show is the state in one line, and one for each execution.
func (s *story) show() string {
	t := s.task
	var b strings.Builder
	fmt.Fprintf(&b, "%s due=%s lapse=%s audience=%s", t.Status, span(t.DueAt), span(t.LapseAt), strings.Join(t.Audience, ","))
	field := func(name string, show bool, v any) {
		if show {
			fmt.Fprintf(&b, " %s=%v", name, v)
		}
	}
	field("attempt", t.Attempt > 0, t.Attempt)
	field("errors", t.ErrorCount > 0, t.ErrorCount)
	field("lapses", t.LapseCount > 0, t.LapseCount)
	field("cancel", !t.CancelRequestedAt.IsZero(), span(t.CancelRequestedAt))
	field("undecodable", !t.UndecodableSince.IsZero(), span(t.UndecodableSince))
	field("expires", !t.ExpireAt.IsZero(), span(t.ExpireAt))
	field("outbox", len(t.Outbox) > 0, kinds(t.Outbox))
	field("result", t.Result.Type != 0, string(codec.ValueJSON(t.Result)))
	field("generation", true, span(time.UnixMilli(t.Generation)))
	for i := range t.Steps {
		field("step", true, t.Steps[i].Name+"/"+t.Steps[i].WorkerID)
	}
	b.WriteByte('\n')
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		switch {
		case Open(w) && w.Parked:
			fmt.Fprintf(&b, "  %s parked until %s", w.ExecID, span(w.PingExpireTime))
		case Open(w):
			fmt.Fprintf(&b, "  %s open until %s", w.ExecID, span(w.PingExpireTime))
		case w.FailTime.IsZero():
			fmt.Fprintf(&b, "  %s succeeded at %s", w.ExecID, span(w.SuccessTime))
		default:
			fmt.Fprintf(&b, "  %s %s at %s", w.ExecID, w.FailKind, span(w.FailTime))
			if !w.RetryAt.IsZero() {
				fmt.Fprintf(&b, ", retry at %s", span(w.RetryAt))
			}
			if w.FailReason != "" {
				fmt.Fprintf(&b, ": %s", w.FailReason)
			}
		}
		if w.LocalRetries > 0 {
			fmt.Fprintf(&b, " (%d local retries)", w.LocalRetries)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func kinds(entries []model.OutboxEntry) string {
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s@%d", e.Kind, e.Rev))
	}
	return strings.Join(out, ",")
}

func span(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Sub(epoch).String()
}

// showUpdate is one line for each operator, times as in show.
func showUpdate(u bson.D) string {
	var b strings.Builder
	for _, op := range u {
		fields := slices.DeleteFunc(slices.Clone(op.Value.(bson.D)), func(e bson.E) bool { return e.Key == "updated_at" }) // always there
		if len(fields) == 0 {
			continue
		}
		slices.SortStableFunc(fields, func(a, b bson.E) int { return cmp.Compare(shownAt(a.Key), shownAt(b.Key)) })
		fmt.Fprintf(&b, "  %-6s", op.Key)
		for _, e := range fields {
			if op.Key == "$unset" {
				fmt.Fprintf(&b, " %s", e.Key)
				continue
			}
			fmt.Fprintf(&b, " %s=%s", e.Key, showValue(e.Key, e.Value))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// shownFirst is the order in which the fields of an update are shown, whatever their order in it.
var shownFirst = strings.Fields(`generation status due_at lapse_at expire_at
	worker_states ping_expire_time success_time fail_time fail_kind fail_reason retry_at returns parked no_callback unstarted pulled local_retries
	attempt error_count lapse_count error_info result finished_at archive_at outbox_at outbox applied cancel_requested_at
	undecodable_since remark wake_at audience created_at start_time priority creator category args checkpoint steps progress options origin`)

func shownAt(key string) int {
	place := func(name string) int { return slices.Index(shownFirst, name) }
	array, rest, _ := strings.Cut(key, ".")
	index, name, _ := strings.Cut(rest, ".")
	at := 1_000_000 * place(array)
	if n, err := strconv.Atoi(index); err == nil { // one execution after the other
		at += 1000*n + place(name)
	}
	return at
}

func showValue(key string, v any) string {
	if at, ok := v.(bson.DateTime); ok {
		return span(at.Time())
	}
	if key == "generation" {
		return span(time.UnixMilli(v.(int64)))
	}
	if id := execOf(v); id != "" {
		return "{" + id + "}"
	}
	if steps, ok := v.(bson.A); ok && key == "steps" {
		return fmt.Sprintf("(%d steps)", len(steps))
	}
	if ws, ok := v.(bson.A); ok && execOf(ws[0]) != "" {
		var ids []string
		for _, w := range ws {
			ids = append(ids, "{"+execOf(w)+"}")
		}
		return "[" + strings.Join(ids, " ") + "]"
	}
	raw, err := marshal(bson.D{{Key: "v", Value: v}})
	if err != nil {
		return err.Error()
	}
	return string(codec.ValueJSON(raw.Lookup("v")))
}

// execOf is the exec id of what is an element of worker_states, else "".
func execOf(v any) string {
	d, _ := v.(bson.D)
	if len(d) == 0 || d[0].Key != "exec_id" {
		return ""
	}
	return fmt.Sprint(d[0].Value)
}
