package rest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfMoreRequestsThanTurnsTheRestWaitUntilTheyAreGone(t *testing.T) {
	turns := make(turns, 1)
	require.NoError(t, turns.within(t.Context(), func() error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, turns.within(ctx, func() error { panic("not its turn") }), context.Canceled)
		return nil
	}))
	require.NoError(t, turns.within(t.Context(), func() error { return nil }))
}
