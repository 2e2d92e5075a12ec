package decision

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// keeping is a planner that cannot carry out what one document plans. Each document is a portion.
type keeping struct {
	Planner[string]
	Documents[string]
	carried []string
}

func (*keeping) PlannedBytes(string) int     { return portionBytes }
func (*keeping) PlannedAt(string) time.Time  { return time.Time{} }
func (*keeping) Tasks(string) []*model.Task  { return nil }
func (*keeping) Trace(string) *model.Trace   { return nil }
func (*keeping) ID(doc string) string        { return doc }
func (*keeping) PlanIDs(doc string) []string { return []string{doc} }

func (*keeping) Finish(_ context.Context, docs []string, _ map[string]error) (map[string]error, error) {
	if slices.Contains(docs, "b") {
		return map[string]error{"b": errors.New("this process cannot read its task")}, nil
	}
	return nil, nil
}

func (p *keeping) CarriedOut(_ context.Context, docs []string) (int, error) {
	p.carried = append(p.carried, docs...)
	return 0, nil
}

// Any reason to keep the plans of one document, of whatever class its error is, keeps up no other document.
func TestADocumentThatKeepsItsPlansKeepsUpNoOther(t *testing.T) {
	t.Parallel()
	st, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, st.FreshClock(t.Context()))
	p := &keeping{}
	d := New(Config[string]{Store: st, Planner: p, Documents: p})
	stuck, err := d.CarryOut(t.Context(), []string{"a", "b", "c"})
	require.Equal(t, []string{"a", "c"}, p.carried)
	require.Equal(t, 1, stuck)
	require.EqualError(t, err, "b: this process cannot read its task")
	require.False(t, store.Outage(err))
}
