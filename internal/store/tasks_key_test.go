package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Every task is found by the beginning of its key, page by page and in the order of the ids, whatever lies between the
// pairs of a tenant and a type, and however little a page looks at.
func TestTasksAreFoundByTheBeginningOfTheirKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	p := newPast(t)
	var drafts []*model.Task
	for _, tenant := range []string{"", "a", "a-b", "a.b", "a0", "z"} {
		for _, typ := range []string{"mail", "mail-2", "mail0"} {
			for _, key := range []string{"a/b", "n", "n1", "n1/x", "n2", "n.1", "z"} {
				creator := ""
				if key == "n1" {
					creator = "ann"
				}
				drafts = append(drafts, lifecycle.NewTask(lifecycle.Draft{Tenant: tenant, Type: typ, Key: key, Creator: creator}, p.Clock.Now()))
			}
		}
	}
	for i := range mostPairs + 5 { // more pairs than a page looks at
		drafts = append(drafts, lifecycle.NewTask(lifecycle.Draft{Tenant: fmt.Sprintf("b%03d", i), Type: "other", Key: "k"}, p.Clock.Now()))
	}
	_, err := p.Tasks.Insert(t.Context(), drafts)
	require.NoError(t, err)
	old := p.ended("n1-past", 8*day, model.Options{}, success(t, 1))
	require.Equal(t, 1, p.archive().Moved)
	want := func(f Filter, is func(key string) bool) (ids []string) {
		for _, x := range drafts {
			if is(x.Key) && (f.Tenant == "" || f.Tenant == x.Tenant || f.Tenant == model.NoTenant && x.Tenant == "") && (f.Type == "" || f.Type == x.Type) && (f.Creator == "" || f.Creator == x.Creator) {
				ids = append(ids, lifeID(x.ID, x.Generation))
			}
		}
		return ids
	}
	begins := func(keys ...string) func(string) bool {
		return func(key string) bool { return slices.Contains(keys, key) }
	}
	for _, f := range []Filter{{}, {Tenant: "a"}, {Tenant: model.NoTenant}, {Type: "mail"}, {Tenant: "a.b", Type: "mail-2"}, {Tenant: "nobody"}, {Type: "nothing"}, {Creator: "ann"}} {
		for _, descending := range []bool{false, true} {
			for _, examine := range []int{0, 1, 3, 10_000} {
				f.Descending = descending
				for prefix, is := range map[string]func(string) bool{"n1": begins("n1", "n1/x"), "n.1": begins("n.1"), "a/": begins("a/b"), "no": begins()} {
					f.Key = prefix
					got, _, largest := p.pages(f, InTasks, Extent{Limit: 4, Examine: examine})
					require.ElementsMatch(t, want(f, is), got, "%+v %d", f, examine)
					require.LessOrEqual(t, largest, 4)
					n, err := p.History.Count(t.Context(), Filter{Tenant: f.Tenant, Type: f.Type, Creator: f.Creator, Key: f.Key})
					require.NoError(t, err)
					require.EqualValues(t, len(got), n, "%+v", f)
				}
			}
		}
	}
	got, pages, _ := p.pages(Filter{Key: "k"}, InTasks, Extent{Limit: 1000, Examine: 10_000})
	require.Len(t, got, mostPairs+5)
	require.Equal(t, 2, pages, "a page looks at so many pairs")
	got, _, _ = p.pages(Filter{Key: "n1-"}, InBoth, Extent{Limit: 4, Examine: 10})
	require.Equal(t, []string{lifeID(old.ID, old.Generation)}, got)
}
