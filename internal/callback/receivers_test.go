package callback

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASilentReceiverGetsAShareAndTheOthersAreFree(t *testing.T) {
	r := receivers{most: 2}
	enter := func(name string) func(bool) {
		t.Helper()
		leave, wait := r.enter(name, 0)
		require.NotNil(t, leave)
		require.Zero(t, wait)
		return func(answered bool) { leave(answered, slowAfter) }
	}
	refused := func(name, why string) {
		t.Helper()
		leave, wait := r.enter(name, 0)
		require.Nil(t, leave, why)
		require.Positive(t, wait)
	}
	var under []func(bool)
	for range 5 { // nothing is known of it yet
		under = append(under, enter("dead"))
	}
	under[0](false)
	refused("dead", "four are under way already")
	for range 10 {
		enter("alive")(true)
	}
	for _, leave := range under[1:4] {
		leave(false)
	}
	last := enter("dead")
	refused("dead", "it has its share")
	last(true)
	for range 5 {
		enter("dead") // it answers again
	}
}

// What deliveries cost that wait for a silent receiver does not grow with how many wait.
func TestTheQueueOfASilentReceiverIsTriedAtARateOfItsOwn(t *testing.T) {
	tries := func(queue int) (n int) {
		r := receivers{most: 1}
		leave, _ := r.enter("dead", 0)
		leave(false, 0)
		_, _ = r.enter("dead", 0) // a call that takes as long as this test
		due := make([]time.Duration, queue)
		for at := time.Duration(0); at < time.Hour; at += time.Second {
			for i := range due {
				if due[i] > at {
					continue
				}
				leave, wait := r.enter("dead", at)
				require.Nil(t, leave)
				require.GreaterOrEqual(t, wait, firstTurn)
				require.LessOrEqual(t, wait, lastTurn)
				due[i] = at + wait
				n++
			}
		}
		return n - queue // all were tried once before it was known
	}
	few, many := tries(1_000), tries(10_000)
	perHour := int(time.Hour / turnEvery)
	require.InDelta(t, perHour, few, 0.05*float64(perHour))
	require.LessOrEqual(t, many, perHour)
}

func TestTurnsComeOneAfterTheOtherAndNoneIsTooFarOff(t *testing.T) {
	var h host
	var waits []time.Duration
	for range int(lastTurn/turnEvery) + 1000 {
		waits = append(waits, h.turn(time.Hour))
	}
	require.Equal(t, []time.Duration{firstTurn, firstTurn + turnEvery, firstTurn + 2*turnEvery}, waits[:3])
	require.LessOrEqual(t, slices.Max(waits), lastTurn)
	require.Equal(t, firstTurn, h.turn(10*time.Hour), "turns that have passed are over")
}

func TestHostsAreNotRememberedForEver(t *testing.T) {
	r := receivers{most: 1}
	for i := range 3 * remembered {
		leave, _ := r.enter(string(rune('a'+i%26))+string(rune(i)), 0)
		require.NotNil(t, leave)
		leave(false, 0)
	}
	require.LessOrEqual(t, len(r.hosts), remembered)
	leave, _ := r.enter("fine", 0)
	require.NotNil(t, leave)
	leave(true, 0)
	require.NotContains(t, r.hosts, "fine", "who answers needs no remembering")
}
