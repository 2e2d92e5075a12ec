package flow

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestASessionWithoutATransactionDelaysNoFlow(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	require.NoError(t, d.db.Client().UseSession(t.Context(), func(ctx context.Context) error {
		doc, err := d.f.Start(ctx, chain("f"))
		require.NoError(t, err)
		require.Equal(t, model.StatusNew, d.task(doc, 0).Status)
		_, err = d.f.Append(ctx, "s", "g", graph.NodeSpec{ID: "a", Type: "t"})
		return err
	}))
	require.NoError(t, d.f.Flush(t.Context()))
	stream, err := d.f.Get(t.Context(), "s/g")
	require.NoError(t, err)
	require.Len(t, stream.Nodes, 1)
}

func TestACommandOnAFlowIsNoPartOfATransaction(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc := d.start("f")
	testdb.RolledBack(t, d.db, func(ctx context.Context) {
		_, err := d.f.Cancel(ctx, doc.ID, "")
		require.NoError(t, err)
		d.told(doc, 0)
		_, err = d.f.RetryFrom(ctx, doc.ID, "a")
		require.NoError(t, err)
		_, err = d.f.SetCallback(ctx, "s", "g", nil, "ext")
		require.NoError(t, err)
	})
	require.Equal(t, model.StatusNew, d.task(doc, 0).Status)
	require.EqualValues(t, 1, d.task(doc, 0).Origin.Generation, "a new life of its node")
	_, err := d.f.Get(t.Context(), "s/g")
	require.NoError(t, err)
}
