package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

// A census walks the keys that it counts, and besides them a few for each type: no count scans a
// collection or sorts.
func TestACensusReadsIndexesOnly(t *testing.T) {
	onEnginesAtFullSize(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		n := e.Of(10_000, 2_000)
		x.crowd(n)
		var c store.Census
		counts := x.explain("aggregate", func() {
			var err error
			c, err = x.store.TakeCensus(t.Context(), store.Census{})
			require.NoError(t, err)
		})
		types := map[string]store.TypeCensus{}
		for _, typ := range c.Types {
			types[typ.Type] = typ
		}
		require.EqualValues(t, n, types["hot"].Due.N, "somebody else's")
		require.EqualValues(t, n, types["hot"].Delayed)
		require.EqualValues(t, n, types["hot"].Running)
		require.EqualValues(t, n, types["other"].Due.N)
		// MongoDB skips what is due later behind each audience and priority. A server that does not looks
		// at all keys of a type in both counts.
		counts.within(t, 6*n+100, 6*n+10)
	})
}
