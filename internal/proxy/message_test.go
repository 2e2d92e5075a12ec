package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestThePatientGiveACommandWithATimeLimitAnHour(t *testing.T) {
	for name, limit := range map[string]any{"of 32 bits": int32(150), "of 64 bits": int64(150), "none": nil} {
		t.Run(name, func(t *testing.T) {
			command := bson.D{{Key: "update", Value: "tasks"}, {Key: "$db", Value: "d"}}
			if limit != nil {
				command = append(command, bson.E{Key: "maxTimeMS", Value: limit})
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
			require.Equal(t, limit != nil, ok)
			if ok {
				require.EqualValues(t, 3_600_000, got)
			}
			require.Equal(t, "tasks", sent.Lookup("update").StringValue(), "all else is as it was")
			require.Len(t, sent, len(doc))
		})
	}
}
