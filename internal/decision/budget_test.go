package decision

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfLargeDocumentsALookDecodesOnlySome(t *testing.T) {
	var b budget
	look := func(n, bytes int) (asked, decoded int, left bool) {
		b.begin()
		asked = min(b.limit(), n)
		for range asked {
			if b.read(bytes) {
				decoded++
			}
		}
		return asked, decoded, b.left
	}
	for _, most := range []int{firstLook, 2 * firstLook, mostLarge, mostLarge} {
		asked, decoded, left := look(1000, 1000)
		require.Equal(t, most, asked)
		require.Equal(t, asked, decoded)
		require.False(t, left)
	}
	asked, decoded, left := look(1000, 1<<20)
	require.Equal(t, mostLarge, asked, "their size is not known yet")
	require.Equal(t, lookBytes>>20, decoded)
	require.True(t, left)
	for range 3 {
		asked, decoded, left = look(1000, 1<<20)
		require.Equal(t, lookBytes>>20, asked)
		require.Equal(t, asked, decoded)
		require.False(t, left)
		asked, decoded, left = look(1, 2*lookBytes)
		require.Equal(t, 1, asked)
		require.Equal(t, 1, decoded, "one is always decided about")
		require.False(t, left)
		b = budget{most: lookBytes >> 20}
	}
}
