package clock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSameIsSaidOnceAMinute(t *testing.T) {
	var s Seldom
	c := &still{}
	require.True(t, s.Again("a", c))
	require.False(t, s.Again("a", c))
	require.True(t, s.Again("b", c), "each key has its own minute")
	c.at = time.Minute - 1
	require.False(t, s.Again("a", c))
	c.at = time.Minute
	require.True(t, s.Again("a", c))
	require.False(t, s.Again("a", c))
}

func TestWhatWasSaidIsForgottenWhenThereIsTooMuch(t *testing.T) {
	var s Seldom
	for i := range 3 * seldomKeys {
		require.True(t, s.Again(fmt.Sprint(i), &still{}))
		require.LessOrEqual(t, len(s.last), seldomKeys+1)
	}
}
