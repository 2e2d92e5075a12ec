package periodic_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestApplyCreatesARuleChangesItAndLeavesItAlone(t *testing.T) {
	p := withKey(t, testdb.New(t), secretKey)
	spec := schedule.Spec{Name: "n", Tenant: model.NoTenant, Cron: "0 0 1 * * *", Type: "t", Enabled: new(true)}
	created, err := p.Apply(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, tickplan.StatusOnline, created.Status)
	again, err := p.Apply(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, created, again)

	spec.Cron = "0 0 2 * * *"
	changed, err := p.Apply(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, created.ID, changed.ID)
	require.EqualValues(t, 2, changed.Version)
	require.Equal(t, spec.Cron, changed.Cron)

	_, err = p.Disable(t.Context(), changed.ID, 0, "not tonight")
	require.NoError(t, err)
	spec.Enabled = nil
	off, err := p.Apply(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, "not tonight", off.PauseNote)

	spec.Cron = "at noon"
	_, err = p.Apply(t.Context(), spec)
	require.ErrorIs(t, err, model.ErrInvalid)
}

func TestProcessesThatApplyARuleAtOnceAgree(t *testing.T) {
	db := testdb.New(t)
	spec := schedule.Spec{Name: "n", Cron: "0 0 1 * * *", Type: "t", Enabled: new(true)}
	var all errgroup.Group
	for range 8 {
		p := withKey(t, db, "")
		all.Go(func() error {
			_, err := p.Apply(t.Context(), spec)
			return err
		})
	}
	require.NoError(t, all.Wait())
	rules, err := withKey(t, db, "").List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Len(t, rules, 1)
	require.EqualValues(t, 1, rules[0].Version)
	require.Equal(t, tickplan.StatusOnline, rules[0].Status)
}
