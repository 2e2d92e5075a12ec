package input

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOrderedKeysSortByTimeAndThenByNumber(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	last := FirstKey(at)
	for _, n := range []uint32{0, 1, 255, 256, math.MaxUint32} {
		key := OrderedKey(at, n)
		require.Less(t, last, key)
		require.NotEqual(t, key, OrderedKey(at, n))
		last = key
	}
	require.Less(t, last, FirstKey(at.Add(time.Millisecond)))
	require.Equal(t, FirstKey(time.UnixMilli(0)), FirstKey(time.Time{}), "before all of them")
}
