package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// Takers look at different moments and take what they chose then, and permits pass on by looks
// of their own. Meanwhile permits beyond a lowered limit, and executions without one, end. No
// execution begins while as many are open as the limit says.
func TestOfALimitThatWasLoweredNoMoreAreTakenThanItSays(t *testing.T) {
	for seed := range uint64(2_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := Limit{Most: 1 + r.IntN(6), Others: r.IntN(4)}
		taken := map[int]bool{}
		for i := range limit.Most + 4 {
			if r.IntN(2) == 0 {
				taken[i] = true
			}
		}
		var chosen, passing []int
		ended := map[int]bool{} // taken still: their executions have ended
		history := fmt.Sprintf("seed %d: limit %d, %d others, taken %v", seed, limit.Most, limit.Others, taken)
		for range 60 {
			switch r.IntN(8) {
			case 6:
				n := r.IntN(limit.Most + 4)
				pass := []Pass{{From: lifecycle.Permit{Type: "t", Name: fmt.Sprint("run/t#", n)}}}
				if taken[n] && !ended[n] {
					history += fmt.Sprintf("; %d ends and may pass on", n)
					ended[n] = true
					if len(limit.covers(taken, pass)) == 1 {
						passing = append(passing, n)
					}
				}
			case 7:
				if len(passing) == 0 {
					continue
				}
				k := r.IntN(len(passing))
				n := passing[k]
				passing = slices.Delete(passing, k, k+1)
				if !ended[n] {
					continue // somebody has freed it
				}
				delete(ended, n)
				history += fmt.Sprintf("; %d passes on", n)
				require.LessOrEqual(t, len(taken)+limit.Others, limit.Most, history)
			case 0, 1:
				chosen = append(chosen, limit.free(taken, 1+r.IntN(4))...)
			case 2:
				n := r.IntN(limit.Most + 4)
				delete(taken, n)
				delete(ended, n)
				history += fmt.Sprintf("; %d ends", n)
			case 3:
				if limit.Others > 0 && r.IntN(4) == 0 {
					history += "; another ends"
					limit.Others--
				}
			default:
				if len(chosen) == 0 {
					continue
				}
				k := r.IntN(len(chosen))
				n := chosen[k]
				chosen = append(chosen[:k], chosen[k+1:]...)
				if taken[n] {
					continue
				}
				taken[n] = true
				history += fmt.Sprintf("; %d is taken", n)
				require.LessOrEqual(t, len(taken)+limit.Others, limit.Most, history)
			}
		}
	}
}
