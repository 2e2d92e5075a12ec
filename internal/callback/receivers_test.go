package callback

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASilentReceiverGetsAShareAndTheOthersAreFree(t *testing.T) {
	r := receivers{most: 2}
	enter := func(name string) func(bool) {
		t.Helper()
		leave, ok := r.enter(name)
		require.True(t, ok)
		return leave
	}
	var under []func(bool)
	for range 5 { // nothing is known of it yet
		under = append(under, enter("dead"))
	}
	under[0](false)
	_, ok := r.enter("dead")
	require.False(t, ok, "four are under way already")
	for range 10 {
		enter("alive")(true)
	}
	for _, leave := range under[1:4] {
		leave(false)
	}
	last := enter("dead")
	_, ok = r.enter("dead")
	require.False(t, ok)
	last(true)
	for range 5 {
		enter("dead") // it answers again
	}
}

func TestHostsAreNotRememberedForEver(t *testing.T) {
	r := receivers{most: 1}
	for i := range 3 * remembered {
		leave, ok := r.enter(string(rune('a'+i%26)) + string(rune(i)))
		require.True(t, ok)
		leave(false)
	}
	require.LessOrEqual(t, len(r.hosts), remembered)
	leave, ok := r.enter("fine")
	require.True(t, ok)
	leave(true)
	require.NotContains(t, r.hosts, "fine", "who answers needs no remembering")
}
