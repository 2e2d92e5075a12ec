package dashboard

import (
	"net/url"
	"strconv"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// month is a calendar: weeks from Monday to Sunday.
type month struct {
	Name         string
	Before, Next string // the months beside it, as queries have them
	Weeks        [][]day
	Cut          bool // there are more entries than were read
}

// day is a field of a calendar; one with number 0 is in another month.
type day struct {
	Number  int
	Today   bool
	Entries []entry
}

// entry is what happened on a day, or what is to come, of one kind.
type entry struct {
	Class, Shape string
	Count        int
	Word         string
	First        string // the time of day of the first one
}

// monthLayout is how queries name a month.
const monthLayout = "2006-01"

// mostOfMonth bounds what a calendar reads of each list.
const mostOfMonth = 1000

// monthOf is the month that the page's query names, or else the one of now: its first instant in the zone.
func (v *visit) monthOf(zone *time.Location) (first, now time.Time) {
	now = v.d.clock.Now().In(zone)
	first = firstOf(now.Year(), now.Month(), zone)
	if at, err := time.Parse(monthLayout, v.r.URL.Query().Get("month")); err == nil {
		first = firstOf(at.Year(), at.Month(), zone)
	}
	return first, now
}

// firstOf is the first instant of a month. Where clocks skip the midnight before it, that is when they have.
func firstOf(year int, month time.Month, zone *time.Location) time.Time {
	at := time.Date(year, month, 1, 0, 0, 0, 0, zone)
	if at.Day() == 1 {
		return at
	}
	_, skipped := at.ZoneBounds()
	return skipped
}

// endOf is the first instant of the month behind that of a time.
func endOf(at time.Time) time.Time { return firstOf(at.Year(), at.Month()+1, at.Location()) }

// calendarOf is an empty calendar of the month that begins then.
func calendarOf(first, now time.Time) *month {
	begin := time.Date(first.Year(), first.Month(), 1, 0, 0, 0, 0, time.UTC) // there every day has a midnight
	m := &month{Name: begin.Format("January 2006"), Before: begin.AddDate(0, -1, 0).Format(monthLayout), Next: begin.AddDate(0, 1, 0).Format(monthLayout)}
	blank := (int(begin.Weekday()) + 6) % 7 // of the first week, from Monday on
	week := make([]day, blank, 7)
	for at := begin; at.Month() == begin.Month(); at = at.AddDate(0, 0, 1) {
		week = append(week, day{Number: at.Day(), Today: at.Format(time.DateOnly) == now.Format(time.DateOnly)})
		if len(week) == 7 {
			m.Weeks, week = append(m.Weeks, week), make([]day, 0, 7)
		}
	}
	if len(week) > 0 {
		m.Weeks = append(m.Weeks, append(week, make([]day, 7-len(week))...))
	}
	return m
}

// add counts something at a time of the month, which is in the calendar's zone.
func (m *month) add(at time.Time, l look, word string, count int) {
	for w := range m.Weeks {
		for d := range m.Weeks[w] {
			if day := &m.Weeks[w][d]; day.Number == at.Day() {
				day.add(at, l, word, count)
			}
		}
	}
}

func (d *day) add(at time.Time, l look, word string, count int) {
	hour := at.Format("15:04")
	for i := range d.Entries {
		if e := &d.Entries[i]; e.Word == word {
			e.Count += count
			e.First = min(e.First, hour)
			return
		}
	}
	d.Entries = append(d.Entries, entry{Class: l.Class, Shape: l.Shape, Count: count, Word: word, First: hour})
}

// toCome is how a calendar shows what is to come.
var toCome = look{Shape: "◷", Class: "wait"}

// monthOfRule is the calendar of a rule's ticks: those that are over by what became of them.
func (v *visit) monthOfRule(path string, rule document) *month {
	zone := zoneOf(rule)
	first, now := v.monthOf(zone)
	end := endOf(first)
	m := calendarOf(first, now)
	limit := strconv.Itoa(mostOfMonth)
	if first.Before(now) {
		runs := v.read(path+"/runs", url.Values{"from": {first.UTC().Format(time.RFC3339)}, "to": {end.UTC().Format(time.RFC3339)}, "limit": {limit}})
		m.Cut = text(runs["next"]) != ""
		for _, r := range list(runs["runs"]) {
			run := object(r)
			if at, ok := instant(run["nominal"]); ok {
				m.add(at.In(zone), stateOf(run["status"]), text(run["status"]), int(integer(run["ticks"])))
			}
		}
	}
	if !end.After(now) || stateOfRule(rule) != "enabled" {
		return m
	}
	from := clock.Later(first.Add(-time.Millisecond), now)
	ticks := v.read(path+"/preview", url.Values{"from": {from.UTC().Format(time.RFC3339Nano)}, "count": {limit}})
	for i, t := range list(ticks["ticks"]) {
		tick := object(t)
		at, ok := instant(tick["utc"])
		if !ok || tick["fires"] != true {
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
