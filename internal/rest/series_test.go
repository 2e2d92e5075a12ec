package rest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/store"
)

func TestSeriesSayWhatHasHappenedSlotBySlot(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, mine := w.with(access.Admin), w.with(access.Viewer, "mine")
	for i := range 3 {
		all.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"key": "%d", "type": "mail"}`, i))
	}
	for _, end := range [][2]string{{"complete", `{"handle": %q}`}, {"fail", `{"handle": %q, "reason": "no", "fatal": true}`}, {"give-back", `{"handle": %q, "reason": "stop"}`}} {
		handle := at(all.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["mail"]}`), "tasks.0.handle")
		all.ok("POST", "/api/v1/pull/"+end[0], fmt.Sprintf(end[1], handle))
	}
	// What the server has counted, as of some minutes ago.
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(t, err)
	require.NoError(t, st.ReadClock(t.Context()))
	st.Measure.Lateness.Of("periodic").Observe(12 * time.Second)
	st.Measure.Lateness.Of("periodic").Observe(time.Second)
	st.Clock.Skip(-20 * time.Minute)
	require.True(t, st.Series.Record(t.Context(), true))

	for window, slots := range map[string]int{"hour": 60, "day": 96, "week": 84} {
		got := all.ok("GET", "/api/v1/series?type=mail&window="+window, "")
		require.Equal(t, window, got["window"])
		require.Len(t, got["slots"], slots)
		filled := 0
		for i, slot := range got["slots"].([]any) {
			begins, err := time.Parse(time.RFC3339Nano, slot.(map[string]any)["at"].(string))
			require.NoError(t, err)
			require.Zero(t, begins.Sub(begins.Truncate(time.Duration(got["slot_ms"].(float64))*time.Millisecond)))
			if at(slot.(map[string]any), "outcomes") != nil {
				filled++
				require.Less(t, i, slots)
			}
		}
		require.Positive(t, filled, "the server may have recorded a part itself, in its own minute")
		require.EqualValues(t, 1, at(got, "sum.succeeded"))
		require.EqualValues(t, 1, at(got, "sum.failed"))
		require.EqualValues(t, 1, at(got, "sum.other"))
		require.EqualValues(t, 1, at(got, "sum.outcomes.fatal"))
		require.EqualValues(t, 3, at(got, "sum.delay_ms.count"))
		require.EqualValues(t, 2, at(got, "sum.ran_ms.count"))
		require.Nil(t, got["late"], "ticks have no type")
		types := all.ok("GET", "/api/v1/series/types?window="+window, "")
		require.Len(t, types["types"], 1)
		require.Equal(t, "mail", at(types, "types.0.type"))
		sum := func(of string) (n float64) {
			for _, v := range at(types, "types.0."+of).([]any) {
				n += v.(float64)
			}
			return n
		}
		require.Len(t, at(types, "types.0.ended"), slots)
		require.EqualValues(t, 3, sum("ended"))
		require.EqualValues(t, 1, sum("failed"))
	}
	fleet := w.with(access.Viewer).ok("GET", "/api/v1/series", "")
	require.Equal(t, "hour", fleet["window"])
	require.EqualValues(t, 1, at(fleet, "sum.succeeded"))
	require.EqualValues(t, 2, at(fleet, "late.periodic.count"))
	require.EqualValues(t, 1, at(fleet, "late.periodic.late"))
	require.EqualValues(t, 30_000, at(fleet, "late.periodic.max"))
	nobody := all.ok("GET", "/api/v1/series?type=nobody", "")
	require.Len(t, nobody["slots"], 60)
	require.EqualValues(t, 0, at(nobody, "sum.succeeded"))
	require.Nil(t, at(nobody, "sum.ran_ms"))

	all.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/series?window=year", "")
	all.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/series?type=a%20b", "")
	mine.fails(http.StatusForbidden, "GET", "/api/v1/series", "")
	mine.fails(http.StatusForbidden, "GET", "/api/v1/series/types", "")
}
