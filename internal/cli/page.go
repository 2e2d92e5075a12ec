package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// mostOnPage is how many things a page of a list has at most.
const mostOnPage = 1000

// pageFlags are those of a command that prints a list by pages.
type pageFlags struct {
	limit int
	after string // what the page before printed
}

// register adds the flags, and checks the limit before the command runs; things are what the list is of.
func (p *pageFlags) register(cmd *cobra.Command, things string) {
	cmd.Flags().IntVar(&p.limit, "limit", 50, "number of "+things+" on a page, at most 1000")
	cmd.Flags().StringVar(&p.after, "after", "", "list "+things+" after this place, for the next page")
	_ = cmd.RegisterFlagCompletionFunc("after", cobra.NoFileCompletions)
	cmd.PreRunE = func(*cobra.Command, []string) error { return checkLimit(p.limit) }
}

func checkLimit(limit int) error {
	if limit < 1 || limit > mostOnPage {
		return usage("--limit is %d; want 1 to %d", limit, mostOnPage)
	}
	return nil
}

// pageOf reads a page of a list that begins after a thing, nil for none. place is that of the last thing, next of the page
// if others follow. It adds what cannot be read to unread.
func pageOf[T any](after *T, limit int, unread store.Unread, read func(after *T, limit int) ([]*T, error), place func(*T) string) (page []*T, next string, err error) {
	page, err = read(after, limit)
	if err = unread.Add(err); err != nil || len(page) == 0 || len(page)+len(unread) < limit {
		return page, "", err
	}
	last := page[len(page)-1]
	more, err := read(last, min(1+len(unread), mostOnPage))
	if len(more) > 0 {
		next = place(last)
	}
	return page, next, unread.Add(err)
}

// namedPage reads a page of the things whose names begin so: what is wanted of it, and the id of its last one if others
// follow. id reads that of the page before.
func namedPage[T any](page pageFlags, kind string, id func(string) (string, error), read func(after string, limit int) ([]T, []store.Unreadable, error), name func(T) string, wanted func(T) bool) (docs []T, unread store.Unread, next string, err error) {
	after := page.after
	if after != "" {
		if after, err = id(after); err != nil {
			return nil, nil, "", err
		}
	}
	docs, broken, next, err := store.NamedPage(after, page.limit, read, name)
	unread = store.Unread{}
	unread.Note(kind, broken)
	return slices.DeleteFunc(docs, func(doc T) bool { return !wanted(doc) }), unread, next, err
}

// changedPlace is the place after a thing in a list that is sorted by the last change. The time is there because the
// thing may have been changed since.
func changedPlace(at time.Time, id string) string { return view.Time(at) + " " + id }

// changedAfter reads such a place. of is a thing there; id reads its id. "" = no place.
func changedAfter[T any](after string, id func(string) (string, error), of func(id string, changed time.Time) *T) (*T, error) {
	if after == "" {
		return nil, nil
	}
	at, name, err := placeOf(after)
	if err == nil {
		name, err = id(name)
	}
	if err != nil {
		return nil, wrongAfter(after)
	}
	return of(name, at), nil
}

// placeOf reads a place in a list: a time and an id.
func placeOf(after string) (at time.Time, id string, err error) {
	changed, id, _ := strings.Cut(after, " ")
	at, err = time.Parse(clock.Format, changed)
	return at, id, err
}

// printPage prints a page: the table, or with -o json the views in a field that is called as the things are. next is
// the value of --after for the next page; "" = there is none.
func (a *app) printPage(things string, views any, next string, t *table, none string) error {
	out := map[string]any{things: views}
	if next != "" {
		out["next"] = next
	}
	if err := a.resultTable(out, t, none); err != nil || next == "" || a.asJSON() {
		return err
	}
	a.say("more %s follow; for the next page: --after '%s'", things, next)
	return nil
}
