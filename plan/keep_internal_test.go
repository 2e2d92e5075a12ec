package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Results are read after the look that found the end. An end without its results is not decided, unless nobody has
// them any more.
func TestWhatATaskReturnedIsKeptOrReadAgain(t *testing.T) {
	p, err := New(Config{Database: testdb.New(t)})
	require.NoError(t, err)
	doc, err := p.Publish(t.Context(), repeat.Spec{PlanID: "p", Station: "report", PlanType: repeat.None, Messages: []any{"north"}})
	require.NoError(t, err)
	found, err := p.store.Tasks.Get(t.Context(), stepplan.TaskID(doc, 1))
	require.NoError(t, err)
	found.Status = model.StatusSuccess
	keep := func() error {
		return planner{p}.Keep(t.Context(), []decision.Case[*repeat.Plan]{{Doc: doc, Ends: []store.OutboxLife{{Task: found}}}})
	}
	require.ErrorContains(t, keep(), found.ID+" returned: it has not ended")
	found.Generation++
	require.NoError(t, keep(), "there is no such life")
	results, err := p.Results(t.Context(), doc.ID, nil, 10)
	require.NoError(t, err)
	require.Empty(t, results)
}
