package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has the garbage collected seldom: a world lives for a moment, and most of what a seed costs was to look for
// what is left of it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
