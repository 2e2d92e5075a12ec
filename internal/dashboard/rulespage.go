package dashboard

import (
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
)

var ruleRoutes = routes{
	"/periodics": (*visit).rules, "/periodics/{tenant}/{name}": (*visit).rule,
	"/runs": (*visit).runs, "/runs/{tenant}/{run}": (*visit).run,
}

const (
	// rulesPerPage bounds the list of rules: each row reads its last runs and its next ticks.
	rulesPerPage = 30
	// runsOfStrip is how many runs of a rule its strip shows.
	runsOfStrip = 30
	// ticksOfRow is how many of a rule's next ticks its row shows.
	ticksOfRow = 3
	// readAtOnce is how many lists a page reads at the same time.
	readAtOnce = 6
)

// ruleRow is a rule as the list shows it.
type ruleRow struct {
	Rule  document
	Path  string // of the API, and of its page
	State string
	Words string
	Next  []any
	Strip strip
}

func (v *visit) rules() error {
	q := v.ofTenant(pick(v.r.URL.Query(), "tenant", "name", "page_token"))
	if q.Get("name") != "" {
		v.ofOneTenant(q)
	}
	q.Set("limit", strconv.Itoa(rulesPerPage))
	doc := v.read("/periodics", q)
	rows := make([]*ruleRow, 0, rulesPerPage)
	for _, r := range list(doc["rules"]) {
		rule := object(r)
		rows = append(rows, &ruleRow{Rule: rule, Path: pathOfRule(rule), State: stateOfRule(rule), Words: wordsOf(rule)})
	}
	err := inParallel(rows, func(row *ruleRow) error {
		runs, err := v.get(row.Path+"/runs", url.Values{"limit": {strconv.Itoa(runsOfStrip)}})
		if err != nil {
			return unlessGone(err)
		}
		row.Strip = stripOf(list(runs["runs"]))
		if row.State != "enabled" {
			return nil
		}
		ticks, err := v.get(row.Path+"/preview", url.Values{"count": {strconv.Itoa(ticksOfRow)}})
		row.Next = list(ticks["ticks"])
		return unlessGone(err)
	})
	if err != nil {
		return err
	}
	return v.render("rules", page{Title: "Periodic rules", Nav: "Periodic", Live: runsOf(q.Get("tenant")), Poll: 15,
		Data: document{"rows": rows, "next": doc["next"], "unreadable": list(doc["unreadable"])}})
}

// runsOf is the query of the events of runs of a tenant; "" = of every one.
func runsOf(tenant string) url.Values {
	out := url.Values{"of": {"runs"}}
	if tenant != "" {
		out.Set("tenant", tenant)
	}
	return out
}

// inParallel does something for each row, a few at a time, and returns one of the errors.
func inParallel[T any](rows []T, do func(T) error) error {
	errs := make(chan error, len(rows))
	seats := make(chan struct{}, readAtOnce)
	var all sync.WaitGroup
	for _, row := range rows {
		seats <- struct{}{}
		all.Go(func() {
			defer func() { <-seats }()
			defer func() { // net/http recovers from panics of its own goroutines only
				if broken := recover(); broken != nil {
					errs <- fmt.Errorf("reading a row ended with a panic: %v", broken)
				}
			}()
			errs <- do(row)
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// pathOfRule is the path of a rule, in the API and of its page.
func pathOfRule(rule document) string {
	return "/periodics" + pathOf(tenantOf(rule), text(rule["name"]))
}

// tenantOf is the tenant of a document as paths have it.
func tenantOf(doc document) string {
	if t := text(doc["tenant"]); t != "" {
		return t
	}
	return "-"
}

// stateOfRule says whether a rule fires: one that is offline without a time has reached its end.
func stateOfRule(rule document) string {
	switch {
	case text(rule["status"]) == "online":
		return "enabled"
	case text(rule["status"]) == "new":
		return "never enabled"
	case text(rule["paused_at"]) == "":
		return "over"
	default:
		return "disabled"
	}
}

// scheduleOf is the schedule of a rule; nil for one that this release cannot read.
func scheduleOf(rule document) *calendar.Schedule {
	s, err := calendar.Parse(calendar.Spec{Cron: text(rule["cron"]), Timezone: text(rule["timezone"])})
	if err != nil {
		return nil
	}
	return s
}

// wordsOf says when a rule fires.
func wordsOf(rule document) string {
	if s := scheduleOf(rule); s != nil {
		return s.Words()
	}
	return text(rule["cron"])
}

// zoneOf is the time zone of a rule or plan.
func zoneOf(doc document) *time.Location {
	zone, err := calendar.Zone(text(doc["timezone"]))
	if err != nil {
		return time.UTC
	}
	return zone
}

func (v *visit) rule() error {
	path := "/periodics" + pathOf(v.r.PathValue("tenant"), v.r.PathValue("name"))
	rule := v.read(path, nil)
	ticks := v.read(path+"/preview", url.Values{"count": {"10"}})
	recent := v.read(path+"/runs", url.Values{"limit": {strconv.Itoa(2 * runsOfStrip)}})
	ledger := runsQuery(v.r.URL.Query())
	ledger.Set("rule_id", text(rule["id"]))
	ledger.Set("tenant", tenantOf(rule))
	runs := v.read("/runs", v.asked(tables["runs"], ledger, perPage))
	month := v.monthOfRule(path, rule)
	return v.render("rule", page{Title: text(rule["name"]), Nav: "Periodic", Live: runsOf(tenantOf(rule)), Poll: 15, Data: document{
		"rule": rule, "path": path, "state": stateOfRule(rule), "words": wordsOf(rule), "ticks": list(ticks["ticks"]), "strip": stripOf(list(recent["runs"])),
		"runs": list(runs["runs"]), "next": runs["next"], "ledger": ledger, "choices": statusChoices, "month": month,
	}})
}
