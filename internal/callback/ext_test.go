package callback

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestAReceiverGetsNoCredentialOfATask(t *testing.T) {
	b := newBench(t)
	var body []byte
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
	})
	value := func(text string) bson.RawValue {
		v, err := codec.EncodeJSON("v", []byte(text), input.MaxArgsBytes)
		require.NoError(t, err)
		return v
	}
	tick := func(ext bson.RawValue) *model.Origin {
		return &model.Origin{Kind: lifecycle.OutcomePeriodic, ID: "-/r", Tick: &model.Tick{Run: "r@1", Rule: "r", Ext: ext}}
	}
	ext := value(`{"region": "eu"}`)
	args := value(`{"url": "http://h", "headers": {"authorization": "Bearer secret", "X-Api-Key": "mss1.1.a", "X-Shop": "7"}, "keys": [{"ak": "a", "sk": "mss1.1.b"}]}`)
	const shown = `{"url": "http://h", "headers": {"authorization": "***", "X-Api-Key": "***", "X-Shop": "7"}, "keys": [{"ak": "a", "sk": "***"}]}`
	for name, c := range map[string]struct {
		typ    string
		origin *model.Origin
		want   string
	}{
		"http":                  {"http", nil, shown},
		"own-type":              {"order", nil, shown},
		"rule-of-a-type":        {"http", tick(ext), shown},
		"rule-with-a-target":    {httptarget.TaskType, tick(ext), `{"region": "eu"}`},
		"target-without-an-ext": {httptarget.TaskType, tick(bson.RawValue{}), `null`},
		"target-without-a-rule": {httptarget.TaskType, nil, shown},
	} {
		for end, out := range map[string]lifecycle.Outcome{"good": lifecycle.Success(bson.RawValue{}), "bad": lifecycle.Failed(failkind.Fatal, "no")} {
			task := b.endedOf(lifecycle.Draft{Type: c.typ, Key: name + "-" + end, Args: args, Origin: c.origin, Options: model.Options{Callback: hook(url)}}, nil, out)
			_, err := b.deliver(t.Context(), task)
			require.NoError(t, err, name)
			var got struct{ Ext json.RawMessage }
			require.NoError(t, json.Unmarshal(body, &got), name)
			require.JSONEq(t, c.want, string(got.Ext), name)
		}
	}
}
