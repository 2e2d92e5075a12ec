package testdb

import (
	"cmp"
	"iter"
	"os"
	"strconv"
	"testing"
)

// Mixes are the n seeds of a test that mixes things at random. MSCHEDULER_MIX_SEED=7 repeats one,
// MSCHEDULER_MIX_SEEDS=200 has so many.
func Mixes(t *testing.T, n int) iter.Seq[int] {
	t.Helper()
	setting := func(name string, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	first := setting("MSCHEDULER_MIX_SEED", 0)
	if first > 0 {
		n = 1
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
