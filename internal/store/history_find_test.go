package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// pages reads all pages, and says how many there are and how many lives the largest has.
func (p *past) pages(f Filter, where Where, e Extent) (lives []string, pages, largest int) {
	p.t.Helper()
	var before *lifeKey
	for {
		page, err := p.History.FindLives(p.t.Context(), f, where, e)
		require.NoError(p.t, err)
		pages++
		largest = max(largest, len(page.Docs))
		for _, raw := range page.Docs {
			k := keyOf(raw)
			if before != nil {
				order := compareKeys(*before, k)
				require.True(p.t, order < 0 && !f.Descending || order > 0 && f.Descending, "%v, then %v", *before, k)
			}
			before = &k
			lives = append(lives, lifeID(k.id, k.generation))
		}
		if page.Next == nil {
			return lives, pages, largest
		}
		f.AfterID, f.AfterGeneration = page.Next.ID, page.Next.Generation
	}
}

func TestAPageExaminesNoMoreThanItMay(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	p := newPast(t)
	var old, present []string
	for i := range 23 {
		task := p.ended(fmt.Sprint("old", i), 8*day, model.Options{}, success(t, 1))
		old = append(old, lifeID(task.ID, task.Generation))
	}
	require.Equal(t, len(old), p.archive().Moved)
	for i := range 31 {
		task := p.ended(fmt.Sprint("now", i), 0, model.Options{}, success(t, 1))
		present = append(present, lifeID(task.ID, task.Generation))
	}
	rare := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "now9x", Creator: "rare"}, p.Clock.Now())
	_, err := p.Tasks.Insert(t.Context(), []*model.Task{rare})
	require.NoError(t, err)
	again := p.again("now30") // the life before goes to the history
	require.NotContains(t, present, lifeID(again.ID, again.Generation))
	past := append(slices.Clone(old), present[30])
	present = append(present, lifeID(again.ID, again.Generation))
	for i := range 14 {
		examine, descending := []int{1, 2, 7, 31, 32, 33, 100}[i/2], i%2 == 1
		got, pages, largest := p.pages(Filter{Descending: descending}, InBoth, Extent{Limit: 4, Examine: examine})
		require.ElementsMatch(t, append(append([]string{lifeID(rare.ID, rare.Generation)}, old...), present...), got, examine)
		require.LessOrEqual(t, largest, 4)
		require.GreaterOrEqual(t, pages, 55/4)

		got, pages, _ = p.pages(Filter{Creator: "rare", Descending: descending}, InTasks, Extent{Limit: 4, Examine: examine})
		require.Equal(t, []string{lifeID(rare.ID, rare.Generation)}, got, examine)
		require.GreaterOrEqual(t, pages, 32/examine, "it does not look at everything at once")
		require.LessOrEqual(t, pages, 32/examine+2)

		got, _, _ = p.pages(Filter{Descending: descending, Tenant: model.NoTenant, Type: "t", Statuses: []model.Status{model.StatusSuccess}}, InHistory, Extent{Limit: 1000, Examine: examine})
		require.ElementsMatch(t, past, got, examine)
	}
	_, pages, _ := p.pages(Filter{Creator: "nobody"}, InBoth, Extent{Limit: 4})
	require.Equal(t, 1, pages, "without a bound it looks until there is something")
}

func TestAPageOfLargeTasksHasFewOfThem(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	p := newPast(t)
	const n = 24
	large := strings.Repeat("x", 1<<20)
	for i := range n {
		args := bson.RawValue{Type: bson.TypeString}
		_, args.Value, _ = bson.MarshalValue(large)
		_, err := p.Tasks.Insert(t.Context(), []*model.Task{lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i), Args: args}, p.Clock.Now())})
		require.NoError(t, err)
	}
	got, _, largest := p.pages(Filter{}, InTasks, Extent{Limit: 1000})
	require.Len(t, got, n)
	require.LessOrEqual(t, largest, pageBytes>>20+1)
}
