package stepplan

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func good() *repeat.Spec {
	return &repeat.Spec{Station: "report", PlanType: repeat.Hour, PlanValue: 1, PlanRepet: -1, Messages: []any{"go"}}
}

func TestThePlanIsWhatWasDefined(t *testing.T) {
	priority := 7
	s := &repeat.Spec{
		PlanID: "other", Tenant: "shop", RequestID: "r1", Station: "report", Caller: "me", Description: "hourly report",
		PlanType: repeat.Day, PlanValue: 2, PlanRepet: 9, NoKeep: true, PlanTime: now.Add(time.Hour + time.Nanosecond), Timezone: "Europe/Berlin",
		Messages: []any{map[string]any{"x": 1}, nil, "y"}, PlanExecTimeout: time.Minute, Priority: &priority,
		Options:  model.Options{ConcurrentWorkerCount: 2, PingInterval: 30 * time.Second},
		Callback: &model.Callback{Success: &model.CallbackTarget{URL: "https://example.com"}},
	}
	p, err := Build(s, "daily", now.Add(time.Nanosecond))
	require.NoError(t, err)
	require.JSONEq(t, `[{"x":1},null,"y"]`, string(codec.ValueJSON(p.Messages)))
	require.NoError(t, Check(p))
	require.Equal(t, &repeat.Plan{
		ID: "shop/daily", PlanID: "daily", Tenant: "shop", RequestID: "r1", Station: "report", Caller: "me", Description: "hourly report",
		PlanType: repeat.Day, PlanValue: 2, PlanRepet: 9, NoKeep: true, Timezone: "Europe/Berlin", Messages: p.Messages,
		PlanExecTimeout: time.Minute, Priority: &priority, Options: s.Options, Callback: s.Callback,
		Start: now.Add(time.Hour), Status: repeat.StatusRunning, Rev: 1, CreatedAt: now, UpdatedAt: now,
	}, p)
	definition := Of(p)
	again, err := Build(&definition, "daily", now)
	require.NoError(t, err)
	require.Equal(t, p, again, "its definition makes the same plan")
}

func TestAPlanWithoutATimeStartsWhenItIsPublished(t *testing.T) {
	for typ, want := range map[repeat.Type]time.Time{
		repeat.None: now, repeat.Second: now, repeat.Minute: now, repeat.Hour: now, repeat.Day: now, repeat.Week: {}, repeat.Month: {},
	} {
		s := good()
		s.PlanType, s.Tenant = typ, model.NoTenant
		p, err := Build(s, "p", now)
		require.NoError(t, err)
		require.Equal(t, want, p.Start, typ)
		require.Equal(t, "-/p", p.ID)
		require.Empty(t, p.Tenant)
		require.NoError(t, Check(p))
	}
}

// Bounds from either side: what is allowed, and the field and reason of what is not.
func TestBoundsOfADefinition(t *testing.T) {
	many := func(n int) []any { return make([]any, n) }
	interval := func(typ repeat.Type, value, repet int) func(*repeat.Spec) {
		return func(s *repeat.Spec) { s.PlanType, s.PlanValue, s.PlanRepet = typ, value, repet }
	}
	for _, c := range []struct {
		set  func(*repeat.Spec)
		want string // "" = allowed
	}{
		{func(s *repeat.Spec) { s.PlanID = strings.Repeat("x", 128) }, ""},
		{func(s *repeat.Spec) { s.PlanID = "月报 #1" }, ""},
		{func(s *repeat.Spec) { s.PlanID = strings.Repeat("x", 129) }, "plan_id has 129 bytes; at most 128 are allowed"},
		{func(s *repeat.Spec) { s.PlanID = "a/b" }, `plan_id is "a/b"; / and @ are not allowed`},
		{func(s *repeat.Spec) { s.PlanID = "a@1" }, `plan_id is "a@1"; / and @ are not allowed`},
		{func(s *repeat.Spec) { s.PlanID = "a\nb" }, `plan_id is "a\nb"; it must not have control characters, such as line breaks`},
		{func(s *repeat.Spec) { s.PlanID = "a\xff" }, "plan_id must be valid UTF-8 without a NUL byte"},
		{func(s *repeat.Spec) { s.Tenant = "a b" }, `tenant is "a b"; want 1 to 100 of a-z A-Z 0-9 . _ -`},
		{func(s *repeat.Spec) { s.RequestID = strings.Repeat("x", 256) }, ""},
		{func(s *repeat.Spec) { s.RequestID = strings.Repeat("x", 257) }, "request_id has 257 bytes; at most 256 are allowed"},
		{func(s *repeat.Spec) { s.Caller = strings.Repeat("x", 200) }, ""},
		{func(s *repeat.Spec) { s.Caller = strings.Repeat("x", 201) }, "caller has 201 bytes; at most 200 are allowed"},
		{func(s *repeat.Spec) { s.Description = strings.Repeat("x", 4096) }, ""},
		{func(s *repeat.Spec) { s.Description = strings.Repeat("x", 4097) }, "description has 4097 bytes; at most 4096 are allowed"},
		{func(s *repeat.Spec) { s.Station = "" }, "station is empty; want 1 to 100 of a-z A-Z 0-9 . _ -"},
		{func(s *repeat.Spec) { s.Station = "mscheduler.callback" }, `station is "mscheduler.callback"; the types that begin with mscheduler. do the work of mscheduler itself`},
		{func(s *repeat.Spec) { s.PlanType = "" }, `plan_type is ""; want one of none, time, second, minute, hour, day, week, month`},
		{interval(repeat.Second, 0, -1), ""},
		{interval(repeat.Day, 32767, 1<<31-1), ""},
		{interval(repeat.Minute, -1, 1), "plan_value is -1; want 0 to 32767 for the type minute"},
		{interval(repeat.Hour, 32768, 1), "plan_value is 32768; want 0 to 32767 for the type hour"},
		{interval(repeat.Hour, 1, 0), "plan_repet is 0; want 1 to 2147483647, or -1 for no end, for the type hour"},
		{interval(repeat.Week, 0, -2), "plan_repet is -2; want 1 to 2147483647, or -1 for no end, for the type week"},
		{interval(repeat.Month, 0, 1<<31), "plan_repet is 2147483648; want 1 to 2147483647, or -1 for no end, for the type month"},
		{interval(repeat.Week, 6, 1), ""},
		{interval(repeat.Week, 7, 1), "plan_value is 7; want 0 to 6 for the type week"},
		{interval(repeat.Month, -31, 1), ""},
		{interval(repeat.Month, -32, 1), "plan_value is -32; want -31 to 31 for the type month"},
		{interval(repeat.Month, 32, 1), "plan_value is 32; want -31 to 31 for the type month"},
		{interval(repeat.None, -5, -5), ""}, // neither has a meaning
		{interval(repeat.Time, 0, 0), "plan_time is missing; the type time needs one"},
		{func(s *repeat.Spec) { s.PlanTime = time.Unix(0, 0) }, ""},
		{func(s *repeat.Spec) { s.PlanTime = time.Unix(-1, 0).UTC() }, "plan_time is 1969-12-31 23:59:59 +0000 UTC; want a time between 1970 and 9999"},
		{func(s *repeat.Spec) { s.Timezone = "Local" }, `timezone "Local" is not a zone of the time zone database, such as Europe/Berlin`},
		{func(s *repeat.Spec) { s.Messages = nil }, "messages are 0; want 1 to 1000"},
		{func(s *repeat.Spec) { s.Messages = many(1000) }, ""},
		{func(s *repeat.Spec) { s.Messages = many(1001) }, "messages are 1001; want 1 to 1000"},
		{func(s *repeat.Spec) { s.Messages = []any{strings.Repeat("x", 240<<10-13)} }, ""},
		{func(s *repeat.Spec) { s.Messages = []any{strings.Repeat("x", 240<<10-12)} }, "messages has 245761 bytes as BSON; at most 245760 are allowed"},
		{func(s *repeat.Spec) { s.Messages = []any{1, map[string]any{"$x": 1}} }, "messages[1].$x has a name that starts with $, which MongoDB does not store"},
		{func(s *repeat.Spec) { s.Messages = []any{func() {}} }, "messages cannot be encoded as JSON: json: unsupported type: func()"},
		{func(s *repeat.Spec) { s.PlanExecTimeout = time.Second }, ""},
		{func(s *repeat.Spec) { s.PlanExecTimeout = time.Second - 1 }, "plan_exec_timeout is 999.999999ms; a lease shorter than 1s cannot be kept"},
		{func(s *repeat.Spec) { s.PlanExecTimeout = -1 }, "plan_exec_timeout is -1ns; it cannot be negative"},
		{func(s *repeat.Spec) { s.PlanExecTimeout = model.NoTimeout + 1 }, "plan_exec_timeout is 87600h0m0.000000001s; at most ten years are allowed"},
		{func(s *repeat.Spec) { s.Options.WorkerTimeout = 1 }, "options.worker_timeout is 1ns; the unit of the database is a millisecond\noptions.worker_timeout is 1ns; a lease shorter than 1s cannot be kept"},
		{func(s *repeat.Spec) { s.PlanExecTimeout, s.Options.WorkerTimeout = time.Minute, time.Minute }, "plan_exec_timeout is given, and so is options.worker_timeout, which means the same; want one of them"},
		{func(s *repeat.Spec) { s.PlanExecTimeout, s.Options.PingInterval = time.Minute, time.Minute }, "options.ping_interval is 1m0s; at most half of worker_timeout (1m0s) keeps the lease when one ping is lost"},
		{func(s *repeat.Spec) { s.Options.ExpiresAt = now }, "options.expires_at is 2026-11-23 13:00:00 +0000 UTC, one time for all steps: those after it would be cancelled"},
		{func(s *repeat.Spec) { s.PlanType, s.Options.ExpiresAt = repeat.None, now }, ""},
		{func(s *repeat.Spec) { n := 10; s.Priority = &n }, "priority is 10; want 0 to 9, 9 runs first"},
		{func(s *repeat.Spec) { s.Callback = &model.Callback{Success: &model.CallbackTarget{URL: "x"}} }, `callback.success.url is "x"; want an absolute http or https address`},
		{func(s *repeat.Spec) {
			s.Callback = &model.Callback{Error: &model.CallbackTarget{URL: "https://x"}, OnPending: true}
		}, "callback.on_pending is for tasks; that of a plan calls error when the plan has a plan error"},
	} {
		s := good()
		c.set(s)
		if err := Validate(s); c.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.want)
			require.ErrorIs(t, err, model.ErrInvalid)
		}
	}
}

func TestADefinitionIsRefusedWithEverythingThatIsWrong(t *testing.T) {
	err := Validate(&repeat.Spec{
		PlanID: "a/b@", Tenant: "!", RequestID: "\x00", Station: " ", PlanType: repeat.Week, PlanValue: 9, Timezone: "Mars",
		PlanTime: time.Unix(-1, 0), PlanExecTimeout: time.Millisecond, Options: model.Options{MaxErrorsPerWorker: 99},
	})
	fields := map[string]bool{}
	var walk func(error)
	walk = func(err error) {
		if joined, many := err.(interface{ Unwrap() []error }); many {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
			return
		}
		var wrong *model.InvalidError
		require.ErrorAs(t, err, &wrong)
		fields[wrong.Field] = true
	}
	walk(err)
	for _, field := range []string{
		"plan_id", "tenant", "request_id", "station", "plan_value", "plan_repet", "timezone", "plan_time", "messages", "plan_exec_timeout", "options.max_errors_per_worker",
	} {
		require.True(t, fields[field], field)
	}
}

func TestACheckFindsWhatSomebodyBroke(t *testing.T) {
	whole := func() *repeat.Plan {
		p, err := Build(good(), "p", now)
		require.NoError(t, err)
		return p
	}
	empty, err := codec.EncodeValue("messages", []any{}, 100)
	require.NoError(t, err)
	for _, c := range []struct {
		damage func(*repeat.Plan)
		want   string
	}{
		{func(p *repeat.Plan) { p.Station = "" }, "station is empty"},
		{func(p *repeat.Plan) { p.Messages.Type = 0 }, "messages are missing"},
		{func(p *repeat.Plan) { p.Messages = empty }, "messages are missing"},
		{func(p *repeat.Plan) { p.Messages.Value = p.Messages.Value[:6] }, "messages are missing"},
		{func(p *repeat.Plan) { p.PlanType = "hours" }, "plan_type is"},
		{func(p *repeat.Plan) { p.PlanValue = -1 }, "plan_value is -1"},
		{func(p *repeat.Plan) { p.PlanRepet = 0 }, "plan_repet is 0"},
		{func(p *repeat.Plan) { p.Timezone = "x" }, "timezone"},
		{func(p *repeat.Plan) { p.Start = time.Time{} }, "plan_time is missing"},
		{func(p *repeat.Plan) { p.Step = -1 }, "step is -1"},
	} {
		p := whole()
		require.NoError(t, Check(p))
		c.damage(p)
		require.ErrorContains(t, Check(p), c.want)
	}
}
