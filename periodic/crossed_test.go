package periodic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// crossed has something happen before the first decision is written.
type crossed struct {
	decision.Documents[*schedule.Rule]
	by func()
}

func (c *crossed) Write(ctx context.Context, writes []store.RuleWrite) (applied []bool, refused map[int]error, err error) {
	if by := c.by; by != nil {
		c.by = nil
		by()
	}
	return c.Documents.Write(ctx, writes)
}

func TestOfTwoEditsAtTheSameTimeOnlyTheStoredOneIsConfirmed(t *testing.T) {
	db := testdb.New(t)
	var editors [2]*Periodic
	for i := range editors {
		var err error
		editors[i], err = New(Config{Database: db})
		require.NoError(t, err)
	}
	spec := schedule.Spec{Name: "r", Cron: "0 0 1 1 *", Type: "tick"}
	r, err := editors[0].Create(t.Context(), spec)
	require.NoError(t, err)
	r, err = editors[0].Disable(t.Context(), r.ID, 0, "until the edit") // the rule has the mark of a decision
	require.NoError(t, err)
	require.NotEmpty(t, r.Decision)

	edit := func(p *Periodic, cron string) error {
		s := spec
		s.Cron = cron
		_, err := p.Update(t.Context(), r.ID, r.Version, s)
		return err
	}
	editors[0].decider.Documents = &crossed{editors[0].decider.Documents, func() {
		require.NoError(t, edit(editors[1], "0 0 0 2 2 *"))
	}}
	require.ErrorIs(t, edit(editors[0], "0 0 0 3 3 *"), model.ErrChanged)
	stored, err := editors[0].Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Equal(t, "0 0 0 2 2 *", stored.Cron)
	require.NotEmpty(t, stored.Decision)
}
