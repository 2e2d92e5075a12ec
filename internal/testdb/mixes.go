package testdb

import (
	"cmp"
	"iter"
	"os"
	"strconv"
	"testing"
)

// Mixes are the seeds of a test that mixes things at random: n of them, or fewer with -short. MSCHEDULER_MIX_SEED=7
// repeats one, MSCHEDULER_MIX_SEEDS=200 has so many.
func Mixes(t *testing.T, n, short int) iter.Seq[int] {
	t.Helper()
	setting := func(name string, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	first := setting("MSCHEDULER_MIX_SEED", 0)
	switch {
	case first > 0:
		n = 1
	case testing.Short():
		n = short
	}
	n = setting("MSCHEDULER_MIX_SEEDS", n)
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(max(first, 1) + i) {
				return
			}
		}
	}
}
