package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestStatsSummarizeTheQueueAndWhatHasEnded(t *testing.T) {
	s := newSession(t)
	require.Contains(t, s.run("stats").stderr, "is not set up", "nothing was written")
	s.ok("send", "c", "--key", "due", "--tenant", "acme")
	s.ok("send", "c", "--key", "later", "--in", "1h")
	s.ok("send", "c", "--key", "gone")
	s.ok("task", "cancel", "c/gone")
	r := s.ok("stats")
	require.Regexp(t, `(?m)^TYPE +DUE +OLDEST +DELAYED +RUNNING +ENDED +FAILED +LATE +TOOK$`, r.stdout)
	require.Regexp(t, `(?m)^c +1 +(just now|\d+\S* ago) +1 +0 +1 +0 +0s, 0s +0s, 0s$`, r.stdout)
	tenant := s.ok("stats", "--tenant", "acme").stdout
	require.Regexp(t, `(?m)^TYPE +WAITING +OLDEST`, tenant)
	require.Regexp(t, `(?m)^c +1 +- +- +0 +0 +0 +- +-$`, tenant)
	require.Empty(t, s.ok("stats", "--type", "other").stdout)
	var out struct {
		Ended struct{ Count int64 }
		Queue struct {
			Types []struct{ Due, Delayed int64 }
		}
	}
	s.ok("stats", "--type", "c", "--window", "10m", "-o", "json").json(&out)
	require.EqualValues(t, 1, out.Ended.Count)
	require.EqualValues(t, 1, out.Queue.Types[0].Due)
	s.ok("stats", "--window", "1d")
	_, err := database(t, s).Collection("control").UpdateByID(t.Context(), "census", bson.D{{Key: "$set", Value: bson.D{
		{Key: "took_ms", Value: int64(3_600_000)}, // so it is not counted anew
		{Key: "types.0.uncounted", Value: bson.A{"delayed"}},
	}}})
	require.NoError(t, err)
	require.Regexp(t, `(?m)^c +1 +(just now|\d+\S* ago) +\? +0 `, s.ok("stats").stdout)
	s.fails(ExitUsage, []string{"--window is 2d; want 1s to 1d"}, "stats", "--window", "2d")
	s.fails(ExitUsage, []string{"--type"}, "stats", "--type", "a b")
}
