package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestThePatientGiveACommandWithATimeLimitAnHour(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		limit   any
		want    int64
	}{
		"of 32 bits":          {"update", int32(150), 3_600_000},
		"of 64 bits":          {"update", int64(150), 3_600_000},
		"none":                {"update", nil, 0},
		"a wait for an event": {"getMore", int64(150), 150},
	} {
		t.Run(name, func(t *testing.T) {
			command := bson.D{{Key: c.command, Value: "tasks"}, {Key: "$db", Value: "d"}}
			if c.limit != nil {
				command = append(command, bson.E{Key: "maxTimeMS", Value: c.limit})
			}
			doc, err := bson.Marshal(command)
			require.NoError(t, err)
			m := make(message, headerSize+4+1)
			m[12], m[13] = opMsg&0xff, opMsg>>8
			m = append(m, doc...)
			m.prolong(time.Hour)
			_, sent, err := m.body()
			require.NoError(t, err)
			got, ok := sent.Lookup("maxTimeMS").AsInt64OK()
			require.Equal(t, c.limit != nil, ok)
			require.Equal(t, c.want, got)
			require.Equal(t, "tasks", sent.Lookup(c.command).StringValue(), "all else is as it was")
			require.Len(t, sent, len(doc))
		})
	}
}
