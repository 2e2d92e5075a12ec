package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
)

var planRoutes = routes{"/plans": (*visit).plans, "/plans/{tenant}/{plan_id}": (*visit).plan}

// planStatuses are those that a plan may have.
var planStatuses = []string{"RUNNING", "ERROR", "FINISH", "CANCELLED"}

// stepsToCome is how many steps the list of a plan's page shows.
const stepsToCome = 10

// planRow is a plan as the list shows it.
type planRow struct {
	Plan  document
	Path  string
	Words string
}

func (v *visit) plans() error {
	q := v.r.URL.Query()
	doc := v.rows("plans")
	var rows []planRow
	for _, p := range list(doc["plans"]) {
		plan := object(p)
		rows = append(rows, planRow{plan, "/plans" + idPath(text(plan["id"]), 2), repetitionOf(plan)})
	}
	filtered := len(pick(q, "tenant", "plan_id", "station", "status", "over")) > 0
	return v.render("plans", page{Title: "Plans", Nav: "Plans", Poll: 5, Data: document{
		"rows": rows, "next": doc["next"], "unreadable": list(doc["unreadable"]), "statuses": planStatuses, "all": !filtered,
	}})
}

func (v *visit) plan() error {
	path := "/plans" + pathOf(v.r.PathValue("tenant"), v.r.PathValue("plan_id"))
	plan := v.read(path, nil)
	results := v.read(path+"/results", url.Values{"sort": {cmp.Or(v.r.URL.Query().Get("sort"), "-at")}, "limit": {strconv.Itoa(perPage)}, "page_token": v.r.URL.Query()["page_token"]})
	month := v.monthOfPlan(path, plan)
	preview := v.read(path+"/preview", url.Values{"count": {strconv.Itoa(stepsToCome)}})
	status := text(plan["status"])
	return v.render("plan", page{Title: text(plan["plan_id"]), Nav: "Plans", Live: url.Values{"tenant": {tenantOf(plan)}, "type": {text(plan["station"])}}, Poll: 5, Data: document{
		"plan": plan, "path": path, "words": repetitionOf(plan), "results": list(results["results"]), "next": results["next"],
		"times": list(preview["times"]), "month": month, "over": status == "FINISH" || status == "CANCELLED",
	}})
}

// monthOfPlan is the calendar of a plan's steps: those that are over by their results, and those to come by the preview.
func (v *visit) monthOfPlan(path string, plan document) *month {
	zone := zoneOf(plan)
	first, now := v.monthOf(zone)
	end := endOf(first)
	m := calendarOf(first, now)
	limit := strconv.Itoa(mostOfMonth)
	results := v.read(path+"/results", url.Values{"from": {first.UTC().Format(time.RFC3339)}, "to": {end.UTC().Format(time.RFC3339)}, "sort": {"-at"}, "limit": {limit}, "outputs": {"false"}})
	m.Cut = text(results["next"]) != ""
	for _, r := range list(results["results"]) {
		result := object(r)
		if at, ok := instant(result["plan_time"]); ok && !at.Before(first) && at.Before(end) {
			m.add(at.In(zone), stateOf(result["state"]), text(result["state"]), 1)
		}
	}
	if first.Sub(now) > farthestPreview {
		return m
	}
	preview := v.read(path+"/preview", url.Values{"from": {first.UTC().Format(time.RFC3339)}, "count": {limit}})
	for i, t := range list(preview["times"]) {
		at, ok := instant(object(t)["utc"])
		if !ok || object(t)["skipped"] != nil || at.Before(first) {
			continue
		}
		if !at.Before(end) {
			break
		}
		m.Cut = m.Cut || i == mostOfMonth-1
		m.add(at.In(zone), toCome, "to come", 1)
	}
	return m
}

// farthestPreview is how far ahead the API previews the steps of a plan.
const farthestPreview = 100 * 365 * 24 * time.Hour

// repetitionOf says how a plan repeats: every 2 days, 10 times; every week on Monday at 09:00, without end.
func repetitionOf(plan document) string {
	value, unit := integer(plan["plan_value"]), text(plan["plan_type"])
	start, _ := instant(plan["start"])
	clock := start.In(zoneOf(plan)).Format("15:04")
	words := "every " + unit
	switch unit {
	case "none":
		return "once, at once"
	case "time":
		return "once, at its time"
	case "week":
		words = "every week on " + time.Weekday(value%7).String() + " at " + clock
	case "month":
		words = "every month " + calendar.DayOfMonth(int(value)) + " at " + clock
	default:
		if value != 1 {
			words = fmt.Sprintf("every %d %ss", value, unit)
		}
		if unit == "day" {
			words += " at " + clock
		}
	}
	switch n := integer(plan["plan_repet"]); {
	case n < 0:
		return words + ", without end"
	case n == 1:
		return words + ", once"
	default:
		return words + ", " + number(n) + " times"
	}
}
