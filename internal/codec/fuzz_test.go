package codec

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func FuzzEncodeJSON(f *testing.F) {
	for _, s := range []string{"", "null", `{"a":[1,-0,1.5e3,"x",null,true,{}]}`, `[1,]`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", `[[[`, `1e999`, `01`, `-`, `{"$a":1}`, `9223372036854775808`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		requireSameUnlessBlank(t, data)
		v, err := EncodeJSON("args", data, input.MaxArgsBytes)
		if err != nil {
			require.ErrorIs(t, err, model.ErrInvalid)
			return
		}
		if len(bytes.TrimSpace(data)) == 0 {
			require.Zero(t, v)
			return
		}
		require.True(t, json.Valid(data), "accepted %q", data)
		if v.Type != 0 {
			require.NoError(t, v.Validate())
		}
		want, err := decodeJSON(data)
		require.NoError(t, err)
		got, err := decodeJSON(ValueJSON(v))
		require.NoError(t, err, "%s", ValueJSON(v))
		require.Equal(t, want, got)
	})
}

func requireSameUnlessBlank(t *testing.T, data []byte) {
	if len(bytes.TrimSpace(data)) > 0 {
		requireSameAsByTokens(t, data)
	}
}
