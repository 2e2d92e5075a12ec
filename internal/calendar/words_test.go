package calendar_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/calendar"
)

func TestRulesInWords(t *testing.T) {
	for cron, words := range map[string]string{
		"@every 90s":           "every 1 minute and 30 seconds",
		"@every 1h":            "every hour",
		"@every 36h":           "every 1 day and 12 hours",
		"@hourly":              "every hour",
		"@daily":               "at 00:00 every day",
		"@weekly":              "at 00:00 on Sunday",
		"@monthly":             "at 00:00 on day 1 of the month",
		"@yearly":              "at 00:00 on day 1 of January",
		"30 2 * * *":           "at 02:30 every day",
		"15 30 2,14 * * *":     "at 02:30:15 and 14:30:15 every day",
		"0 9 * * 1-5":          "at 09:00 on Monday to Friday",
		"0 9 * * mon,wed,7":    "at 09:00 on Monday, Wednesday and Sunday",
		"*/5 * * * *":          "every 5 minutes",
		"*/5 9-17 * * mon-fri": "every 5 minutes of hour 9 to 17, on Monday to Friday",
		"* * * * *":            "every minute",
		"* * * * * *":          "every second",
		"*/10 * * * * *":       "every 10 seconds",
		"5 * * * *":            "every hour at minute 5",
		"30 5 */2 * * *":       "every 2 hours at minute 5 and second 30",
		"0 0 1,15 * *":         "at 00:00 on day 1 and 15 of the month",
		"0 0 1 1,jul *":        "at 00:00 on day 1 of January and July",
		"0 0 13 * 5":           "at 00:00 on day 13 of the month or Friday",
		"0 0 */2 * 5":          "at 00:00 on every 2nd day of the month if it is Friday",
		"0 0 * 6-8 *":          "at 00:00, in June to August",
		"10,40 8-18/2 * * *":   "at minute 10 and 40 of hour 8 to 18 in steps of 2",
		"*/7 3 4 * * *":        "at second 0, 7, 14, 21, 28, 35, 42, 49 and 56, minute 3 of hour 4",
		"0 */45 * * * *":       "at minute 0 and 45", // and not every 45 minutes
		"0 0/40 9 * * *":       "at minute 0 and 40 of hour 9",
		"*/25 * * * * *":       "at second 0, 25 and 50 of every minute",
		"0 */5 * * *":          "at 00:00, 05:00, 10:00, 15:00 and 20:00 every day",
		"*/5 */9 * * *":        "every 5 minutes of hour 0, 9 and 18",
		"*/20 */7 * * * *":     "at every 20th second, minute 0, 7, 14, 21, 28, 35, 42, 49 and 56",
		"0 5/20 * * * *":       "at minute 5 and every 20 after",
		"0 0 0 1 */3 *":        "at 00:00 on day 1 of every 3rd month",
		"0 0 0 * 12 sat":       "at 00:00 on Saturday in December",
	} {
		s, err := calendar.Parse(calendar.Spec{Cron: cron})
		require.NoError(t, err, cron)
		require.Equal(t, words, s.Words(), cron)
	}
}
