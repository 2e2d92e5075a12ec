package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInversionsOfKnownOrders(t *testing.T) {
	require.Zero(t, Inversions([]int{1, 2, 3, 4}))
	require.InDelta(t, 1, Inversions([]int{4, 3, 2, 1}), 0)
	require.InDelta(t, 1.0/6, Inversions([]int{1, 3, 2, 4}), 1e-9)
}
