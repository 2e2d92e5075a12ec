package dashboard

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Some zones have days without a midnight: their clocks go from 00:00 to 01:00.
func TestACalendarHasEveryDayOnceOnItsWeekday(t *testing.T) {
	for zone, months := range map[string][]string{"America/Santiago": {"2026-09"}, "America/Havana": {"2026-03"}, "America/Asuncion": {"2017-10"}, "UTC": {"2026-02", "2024-02"}} {
		in, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, name := range months {
			v := &visit{d: New(Config{}), r: httptest.NewRequestWithContext(t.Context(), "GET", "/?month="+name, nil)}
			first, _ := v.monthOf(in)
			m := calendarOf(first, time.Date(first.Year(), first.Month(), 6, 12, 0, 0, 0, in))
			begin, err := time.Parse(monthLayout, name)
			require.NoError(t, err)
			require.Equal(t, begin.Format("January 2006"), m.Name)
			require.Equal(t, begin.AddDate(0, -1, 0).Format(monthLayout), m.Before)
			require.Equal(t, begin.AddDate(0, 1, 0).Format(monthLayout), m.Next)
			want := 1
			for _, week := range m.Weeks {
				require.Len(t, week, 7)
				for place, d := range week {
					if d.Number == 0 {
						continue
					}
					require.Equal(t, want, d.Number, zone)
					require.Equal(t, want == 6, d.Today)
					require.Equal(t, begin.AddDate(0, 0, want-1).Weekday(), time.Weekday((place+1)%7), "%s, day %d", zone, want)
					want++
				}
			}
			require.Equal(t, begin.AddDate(0, 1, -1).Day(), want-1, zone)
			require.Equal(t, 1, first.Day(), zone)
			require.Equal(t, 1, endOf(first).Day(), zone)
			require.NotEqual(t, 1, endOf(first).Add(-time.Nanosecond).Day(), zone)
		}
	}
}
