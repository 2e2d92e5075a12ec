package calendar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Clocks that pass over a day, and those that show an hour twice.
func TestWallClockTimesAreInstants(t *testing.T) {
	for _, c := range []struct{ zone, wall, want string }{
		{"America/New_York", "2026-03-08T02:30:00Z", "2026-03-08T07:00:00Z"}, // in the gap
		{"America/New_York", "2026-11-01T01:30:00Z", "2026-11-01T05:30:00Z"}, // comes twice
		{"Australia/Lord_Howe", "2026-10-04T02:15:00Z", "2026-10-03T15:30:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T01:45:00Z", "2026-04-04T14:45:00Z"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z"}, // a day in the gap
		{"Pacific/Apia", "2011-12-31T00:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		zone, err := Zone(c.zone)
		require.NoError(t, err)
		wall, err := time.Parse(time.RFC3339, c.wall)
		require.NoError(t, err)
		require.Equal(t, c.want, InstantOf(wall, zone).Format(time.RFC3339), c)
	}
}
