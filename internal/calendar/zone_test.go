package calendar

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine says to the process that a test starts what it is for.
const machine = "MSCHEDULER_TEST_OTHER_MACHINE"

// A machine whose own database says that Berlin is where Tokyo is, as one does that is years
// old, fires when all the others do.
func TestZonesOfTheMachineDoNotMoveATick(t *testing.T) {
	const want = "2026-07-01T00:30:00Z"
	rule := func() string {
		c, err := Parse(Spec{Cron: "30 2 * * *", Timezone: "Europe/Berlin"})
		require.NoError(t, err)
		return c.Next(at(t, "2026-06-30T12:00:00Z")).Format(time.RFC3339)
	}
	if os.Getenv(machine) != "" { // Go looks at ZONEINFO once in a process
		require.Equal(t, want, rule())
		local, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		_, offset := at(t, want).In(local).Zone()
		require.Equal(t, 9*3600, offset, "the machine is not the one that the test means")
		return
	}
	require.Equal(t, want, rule())
	files, err := zoneFiles()
	require.NoError(t, err)
	tokyo, err := read(files["Asia/Tokyo"])
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "Europe"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), tokyo, 0o600))
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") //nolint:gosec // this very test
	other.Env = append(os.Environ(), machine+"=1", "ZONEINFO="+dir)
	out, err := other.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestEveryZoneOfTheDatabaseCanBeRead(t *testing.T) {
	files, err := zoneFiles()
	require.NoError(t, err)
	require.Greater(t, len(files), 500)
	for name := range files {
		zone, err := Zone(name)
		require.NoError(t, err, name)
		require.Equal(t, name, zone.String())
		again, err := Zone(name)
		require.NoError(t, err)
		require.Same(t, zone, again, name)
	}
	require.Regexp(t, `^20\d\d[a-z]$`, ZonesVersion())
}

func TestOnlyNamesOfTheDatabaseAreZones(t *testing.T) {
	for _, name := range []string{"Local", "Europe", "Europe/", "europe/berlin", "Europe/Berlin ", "../Europe/Berlin", "/etc/localtime", "Nowhere/Here"} {
		_, err := Zone(name)
		require.Error(t, err, name)
	}
	for _, name := range []string{"", "UTC"} {
		zone, err := Zone(name)
		require.NoError(t, err)
		require.Same(t, time.UTC, zone)
	}
}
