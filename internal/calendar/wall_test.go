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

// The last day of a leap year is a day like others, also where only the rule of a zone is known.
func TestTheLastDayOfALeapYearComes(t *testing.T) {
	for _, zone := range []string{"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Auckland", "America/St_Johns", "UTC"} {
		for _, year := range []int{2008, 2024, 2028, 2096, 2400} {
			c, err := Parse(Spec{Cron: "0 0 * * * *", Timezone: zone})
			require.NoError(t, err)
			from := time.Date(year, 12, 29, 0, 0, 0, 0, time.UTC)
			after := from
			for h := 1; h <= 5*24; h++ {
				next := c.Next(after)
				at := from.Add(time.Duration(h) * time.Hour)
				if zone == "America/St_Johns" { // its hours begin at half past
					at = at.Add(-time.Hour / 2)
				}
				require.Equal(t, at, next, zone)
				require.Equal(t, at, InstantOf(WallOf(at, c.Zone()), c.Zone()), zone)
				after = next
			}
			require.Equal(t, int64(5*24), c.Tally(from, from.Add(5*day)).Count, zone)
		}
	}
}
