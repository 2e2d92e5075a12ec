package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

const twoPlans = `plan_id: now
station: report
description: sales
plan_type: none
messages: [north, {top: 10}]
---
plan_id: later
tenant: shop
station: report
plan_type: day
plan_value: 2
plan_repet: 3
plan_time: 2030-03-30 02:30
timezone: Europe/Berlin
messages: [x]
`

func TestADryRunShowsTheNextStepsAndWritesNothing(t *testing.T) {
	s := newSession(t)
	s.uri = "mongodb://localhost:1/?serverSelectionTimeoutMS=1" // no database is needed
	r := s.ok("plan", "publish", "-f", s.file(twoPlans), "--dry-run", "-n", "2")
	require.Empty(t, r.stderr)
	require.Regexp(t, `(?m)^PLAN +STEP +LOCAL +UTC +FROM NOW +RUNS +WHY NOT
now +1 +20\S+ \S+\+00:00 +\w{3} +20\S+ \S+Z +(just now|now) +yes +-
now +- +- +- +- +- +over +step 1 of 1 was the last
shop/later +1 +2030-04-01 02:30:00\+02:00 +Mon +2030-04-01 00:30:00Z +in \S.* +yes +-
shop/later +2 +2030-04-03 02:30:00\+02:00 +Wed +2030-04-03 00:30:00Z +in \S.* +yes +-$`, r.stdout)

	var out struct {
		Plans []struct {
			PlanID string `json:"plan_id"`
			Times  []struct {
				Step, Skipped   int64
				UTC, Local, Why string
				Over            bool
			}
		}
	}
	past := "station: report\nplan_type: hour\nplan_value: 1\nplan_repet: 3\nplan_time: 2020-01-01 00:00\nmessages: [x]\n"
	s.ok("plan", "publish", "-f", s.file(past), "--dry-run", "-o", "json").json(&out)
	require.Equal(t, "(generated)", out.Plans[0].PlanID)
	times := out.Plans[0].Times
	require.Len(t, times, 2)
	require.EqualValues(t, 1, times[0].Step)
	require.EqualValues(t, 3, times[0].Skipped)
	require.Equal(t, "2020-01-01T01:00:00Z", times[0].Local)
	require.Contains(t, times[0].Why, "no_keep is false")
	require.True(t, times[1].Over)
	require.Regexp(t, `(?m)^\(generated\) +1 to 3 +2020-01-01 01:00:00\+00:00 +Wed .* no +the last of its times, step 3, was before`, s.ok("plan", "publish", "-f", s.file(past), "--dry-run").stdout)
}

func TestAFileOfPlansIsRefusedWholeWithEveryMistake(t *testing.T) {
	s := newSession(t)
	path := s.file(`plan_id: a
station: report
plan_type: hour
messages: [x]
---
plan_id: a
station: mscheduler.http
plan_type: weekly
messages: []
plan_exec_timeout: 5ms
options: {worker_timeout: 1m}
`)
	for _, more := range [][]string{nil, {"--dry-run"}} {
		r := s.fails(ExitUsage, []string{
			"types.yaml:1:1: plan_repet is 0; want 1 to 2147483647, or -1 for no end, for the type hour",
			`types.yaml:6:10: plan_id is "a", as that of the plan at `, "types.yaml:1:1\n",
			`types.yaml:7:10: station is "mscheduler.http"; the types that begin with mscheduler. do the work of mscheduler itself`,
			`types.yaml:8:12: plan_type is "weekly"; want one of none, time, second, minute, hour, day, week, month`,
			"messages are 0; want 1 to 1000",
			"plan_exec_timeout is given, and so is options.worker_timeout",
		}, append([]string{"plan", "publish", "-f", path}, more...)...)
		require.Empty(t, r.stdout)
	}
	require.Contains(t, s.run("plan", "list").stderr, "is not set up", "nothing was written")

	s.fails(ExitUsage, []string{"types.yaml:1:10: station is http, which cannot run steps: its arguments are url, "}, "plan", "publish", "-f", s.file("station: http\nplan_type: none\nmessages: [{url: 'http://h/'}]\n"))
	r := s.fails(ExitUsage, []string{`types.yaml:3:12: plan_time is "noon"; want a time`}, "plan", "publish", "-f", s.file("station: report\nplan_type: time\nplan_time: noon\nmessages: [x]\n"))
	require.Equal(t, 1, strings.Count(r.stderr, "plan_time"), "a time that is wrong is not missing, too")
}

// reporter is a consumer of the station report and an engine of plans, beside the commands.
func (s *session) reporter(handle func(ctx context.Context, task *consumer.Task[repeat.Args[any]]) (string, error)) (drain func()) {
	s.t.Helper()
	db := database(s.t, s)
	c, err := consumer.New(consumer.Config{Database: db, WorkerID: "w1"})
	require.NoError(s.t, err)
	require.NoError(s.t, consumer.Handle(c, model.NewType[repeat.Args[any], string]("report"), handle))
	plans, err := plan.New(plan.Config{Database: db})
	require.NoError(s.t, err)
	return func() { mstest.Drain(s.t, c, mstest.With(plans.Drain)) }
}

func TestAPlanIsPublishedShownAndOver(t *testing.T) {
	s := newSession(t)
	path := s.file(twoPlans)
	r := s.ok("plan", "publish", "-f", path)
	require.Regexp(t, `(?m)^now  RUNNING  step 1, 20\S+ \S+Z \(.*\)
shop/later  RUNNING  step 1, 2030-04-01 00:30:00Z \(in .*\)$`, r.stdout)
	require.Contains(t, r.stderr, `unknown type "report"`)
	require.Contains(t, r.stderr, "no plan engine is running")
	r = s.ok("plan", "publish", "-f", path)
	require.Contains(t, r.stderr, "a plan with the id now already exists; nothing changed\na plan with the id shop/later already exists; nothing changed\n")
	require.NotContains(t, r.stderr, "unknown type", "nothing was stored")

	r = s.ok("plan", "list")
	require.Regexp(t, `(?m)^shop/later +report +every 2 days, 3 times +RUNNING +1 +in \S.* +- +0 `, r.stdout)
	require.Regexp(t, `(?m)^now +report +once, at once +RUNNING +1 `, r.stdout)
	require.Contains(t, r.stderr, "no plan engine is running")
	require.NotContains(t, s.ok("plan", "list", "--tenant", "shop").stdout, "\nnow ")
	require.Regexp(t, `(?m)^shop/later `, s.ok("plan", "list", "--tenant", "shop", "--plan-id", "la").stdout)
	require.Empty(t, s.ok("plan", "list", "--plan-id", "la").stdout, "those without a tenant")
	require.Regexp(t, `(?m)^now `, s.ok("plan", "list", "--plan-id", "n", "--station", "report", "--limit", "1").stdout)
	require.Empty(t, s.ok("plan", "list", "--plan-id", "n", "--status", "error").stdout)
	s.fails(ExitUsage, []string{"plan id is"}, "plan", "list", "--plan-id", "n", "--after", "a b/c")
	page := s.ok("plan", "list", "--limit", "1")
	_, place, found := strings.Cut(page.stderr, "--after '")
	require.True(t, found, page.stderr)
	place, _, _ = strings.Cut(place, "'")
	require.Regexp(t, `(?m)^now +report `, s.ok("plan", "list", "--limit", "1", "--after", place).stdout)

	r = s.ok("plan", "show", "shop/later")
	require.Regexp(t, `(?m)^repeats +every 2 days, 3 times$`, r.stdout)
	require.Regexp(t, `(?m)^due +2030-04-01 00:30:00Z \(in `, r.stdout)
	require.Regexp(t, `(?m)^task +shop/report/later@1$`, r.stdout)
	require.Contains(t, r.stderr, "no live worker takes the task of this step; to see why: mscheduler task explain 'shop/report/later@1'\n")
	written := s.ok("plan", "show", "shop/later", "-o", "yaml").stdout
	require.Contains(t, written, "plan_time: \"2030-03-30T01:30:00Z\"\n")
	require.Contains(t, s.ok("plan", "publish", "-f", s.file(written)).stderr, "already exists")
	var doc struct {
		ID       string
		PlanType string `json:"plan_type"`
		Messages []any
	}
	s.ok("plan", "show", "now", "-o", "json").json(&doc)
	require.Equal(t, "-/now none", doc.ID+" "+doc.PlanType)
	require.Equal(t, []any{"north", map[string]any{"top": 10.0}}, doc.Messages)
	require.Contains(t, s.ok("plan", "results", "now").stderr, "no results")

	r = s.ok("plan", "preview", "shop/later")
	require.Regexp(t, `(?m)^shop/later +3 +2030-04-05 02:30:00\+02:00 +Fri `, r.stdout)
	require.Regexp(t, `(?m)^shop/later .* over +step 3 of 3 was the last$`, r.stdout)

	s.reporter(func(_ context.Context, task *consumer.Task[repeat.Args[any]]) (string, error) {
		return task.Args.Description + " done", nil
	})()
	require.NotContains(t, s.ok("plan", "list").stdout, "\nnow ")
	require.Regexp(t, `(?m)^now +report +once, at once +FINISH +- +- +OK +1 .* step 1 of 1 was the last$`, s.ok("plan", "list", "--status", "finish").stdout)
	require.Regexp(t, `(?m)^1 +0 +20\S+ \S+Z +\S.* +w1 +OK +"sales done"$`, s.ok("plan", "results", "now").stdout)
	require.Regexp(t, `(?m)^ended +20`, s.ok("plan", "show", "now").stdout)
	require.Contains(t, s.ok("plan", "preview", "now").stdout, "over")
	require.Contains(t, s.ok("plan", "publish", "-f", path).stderr, "a plan with the id now already exists")

	require.Regexp(t, `^shop/later  CANCELLED .*withdrawn`, s.ok("plan", "cancel", "shop/later", "--remark", "withdrawn").stdout)
	s.fails(ExitNotFound, []string{"no such plan: nobody"}, "plan", "show", "nobody")
	s.fails(ExitNotFound, []string{"no such plan: nobody"}, "plan", "results", "nobody")
}

func TestAPlanThatNobodyServesSaysSo(t *testing.T) {
	s := newSession(t)
	s.ok("plan", "publish", "-f", s.file(twoPlans))
	require.NotContains(t, s.ok("plan", "show", "now").stdout, "NO_WORKER")
	// What an engine notes when the step has been due for long.
	noted, err := database(t, s).Collection("plans").UpdateByID(t.Context(), "-/now", bson.D{{Key: "$set", Value: bson.D{
		{Key: "last_state", Value: stepplan.StateNoWorker}, {Key: "reason", Value: "no live worker takes the task of this step"},
	}}})
	require.NoError(t, err)
	require.EqualValues(t, 1, noted.MatchedCount)
	r := s.ok("plan", "show", "now")
	require.Regexp(t, `(?m)^last state +NO_WORKER`, r.stdout)
	require.Regexp(t, `(?m)^why +no live worker takes the task of this step$`, r.stdout)
	require.Regexp(t, `(?m)^now .* NO_WORKER .*no live worker takes the task of this step`, s.ok("plan", "list").stdout)
}

func TestAPlanThatIsErrorIsReset(t *testing.T) {
	s := newSession(t)
	s.ok("plan", "publish", "-f", s.file("plan_id: p\nstation: report\nplan_type: none\nmessages: [x]\n"))
	s.fails(ExitRefused, []string{"only a plan that is ERROR can be reset"}, "plan", "reset", "p")
	wrong := true
	drain := s.reporter(func(_ context.Context, _ *consumer.Task[repeat.Args[any]]) (string, error) {
		if wrong {
			return "", consumer.PlanError(errors.New("the station is closed"))
		}
		return "", nil
	})
	drain()
	require.Regexp(t, `(?m)^p +report .* ERROR +.* PLAN_ERROR .* the station is closed$`, s.ok("plan", "list", "--status", "error").stdout)
	require.Contains(t, s.ok("plan", "preview", "p").stderr, "the plan is ERROR, so no step starts; to let it go on: mscheduler plan reset 'p'\n")
	wrong = false
	require.Regexp(t, `^p  RUNNING`, s.ok("plan", "reset", "p").stdout)
	drain()
	require.Regexp(t, `(?m)^status +FINISH$`, s.ok("plan", "show", "p").stdout)
	require.Regexp(t, `(?s)PLAN_ERROR +the station is closed.* OK `, s.ok("plan", "results", "p").stdout)
}

func TestAPageOfLargeResultsIsShortAndLeadsToTheNext(t *testing.T) {
	s := newSession(t)
	s.ok("plan", "publish", "-f", s.file("plan_id: p\nstation: report\nplan_type: none\nmessages: [x]\n"))
	const n = 20
	large := strings.Repeat("x", 1<<20)
	var docs []any
	for i := range n {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("-/p/%d/x", i)}, {Key: "plan", Value: "-/p"}, {Key: "plan_id", Value: "p"}, {Key: "step", Value: int64(i)},
			{Key: "state", Value: "OK"}, {Key: "at", Value: bson.DateTime(1000 * i)}, {Key: "result", Value: large},
		})
	}
	_, err := database(t, s).Collection("plan_results").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	var steps []int
	for after := []string{}; ; {
		var page struct {
			Results []struct{ Step int }
			Next    string
		}
		s.ok(append([]string{"plan", "results", "p", "-o", "json"}, after...)...).json(&page)
		require.LessOrEqual(t, len(page.Results), 9)
		for _, r := range page.Results {
			steps = append(steps, r.Step)
		}
		if page.Next == "" {
			break
		}
		after = []string{"--after", page.Next}
	}
	require.Len(t, steps, n)
	require.IsIncreasing(t, steps)
}

func TestPlansSayWhenTheirStepsAre(t *testing.T) {
	for want, p := range map[string]repeat.Plan{
		"every second":                                {PlanType: repeat.Second, PlanValue: 1, PlanRepet: -1},
		"every 90 minutes, 1 time":                    {PlanType: repeat.Minute, PlanValue: 90, PlanRepet: 1},
		"every Sunday at 00:00, 2 times":              {PlanType: repeat.Week, PlanRepet: 2},
		"every month on day 31 at 00:00":              {PlanType: repeat.Month, PlanValue: 31, PlanRepet: -1},
		"every month on the last day at 00:00":        {PlanType: repeat.Month, PlanRepet: -1},
		"every month 2 days before the last at 00:00": {PlanType: repeat.Month, PlanValue: -2, PlanRepet: -1},
	} {
		require.Equal(t, want, repeats(&p))
	}
}

func TestPlanWatchPrintsResultsAndResumes(t *testing.T) {
	s := newSession(t)
	drain := s.reporter(func(_ context.Context, task *consumer.Task[repeat.Args[any]]) (string, error) {
		return "done " + task.Args.PlanID, nil
	})
	s.ok("db", "migrate")
	published := 0
	publish := func(description string) (id string) {
		published++
		id = fmt.Sprint("p", published)
		s.ok("plan", "publish", "-f", s.file("plan_id: "+id+"\ntenant: shop\ndescription: "+description+"\nstation: report\nplan_type: none\nmessages: [x]\n"))
		drain()
		return id
	}
	programs, _, stopPrograms := s.start("plan", "watch", "--tenant", "shop", "--description", "sales", "-o", "json")
	people, said, stopPeople := s.start("plan", "watch", "--description", "sales")
	s.eventually("both watches print a result", func() bool { // they may not have begun yet
		publish("sales")
		return programs.String() != "" && people.String() != ""
	})
	require.Contains(t, said.String(), "no plan engine is running")
	other := publish("stock")
	last := publish("sales")
	s.eventually("both watches print the last result", func() bool {
		return strings.Contains(programs.String(), "shop/"+last+"/") && strings.Contains(people.String(), "shop/"+last+" ")
	})
	r := stopPeople()
	require.Equal(t, ExitOK, r.code)
	require.Regexp(t, `(?m)^\S+Z  OK          shop/p\d+  step 1 by w1  "done p\d+"$`, r.stdout)
	require.Regexp(t, `to continue: --after \S+`, r.stderr)
	r = stopPrograms()
	require.NotContains(t, r.stdout+people.String(), "shop/"+other)
	var e struct{ Token, State, Result, Description string }
	line, _, _ := strings.Cut(r.stdout, "\n")
	require.NoError(t, json.Unmarshal([]byte(line), &e))
	require.Equal(t, []string{"OK", "sales"}, []string{e.State, e.Description})

	again, _, stop := s.start("plan", "watch", "shop/"+other, "--after", e.Token)
	s.eventually("what happened since is printed", func() bool { return strings.Contains(again.String(), "shop/"+other) })
	require.Equal(t, 1, strings.Count(stop().stdout, "\n"))
	s.fails(ExitNotFound, []string{"no such plan: nobody"}, "plan", "watch", "nobody")
	s.fails(ExitUsage, []string{"token is not valid"}, "plan", "watch", "--after", "x")
	s.fails(ExitUsage, []string{"--tenant is for the plans of a tenant"}, "plan", "watch", "shop/"+other, "--tenant", "shop")
}
