package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Takers look at different moments and take what they chose then, while permits beyond a
// lowered limit, and executions without one, end: never is one taken while as many are open
// as the limit says.
func TestOfALimitThatWasLoweredNoMoreAreTakenThanItSays(t *testing.T) {
	for seed := range uint64(2_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := SlotLimit{Most: 1 + r.IntN(6), Others: r.IntN(4)}
		taken := map[int]bool{}
		for i := range limit.Most + 4 {
			if r.IntN(2) == 0 {
				taken[i] = true
			}
		}
		var chosen []int
		history := fmt.Sprintf("seed %d: limit %d, %d others, taken %v", seed, limit.Most, limit.Others, taken)
		for range 60 {
			switch r.IntN(6) {
			case 0, 1:
				chosen = append(chosen, limit.free(taken, 1+r.IntN(4))...)
			case 2:
				n := r.IntN(limit.Most + 4)
				delete(taken, n)
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
