package sim

import (
	"net/http/httptest"
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has the garbage collected seldom: a world lives for a moment, and most of what a seed costs was to look for
// what is left of it. The limit keeps it from taking the memory of the packages that are tested beside it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(2 << 30)
	receivers.server = httptest.NewServer(receivers)
	code := m.Run()
	receivers.server.Close()
	os.Exit(code)
}
