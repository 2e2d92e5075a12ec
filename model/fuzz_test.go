package model

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The seeds run in every test; `go test ./model -fuzz FuzzEncodeJSON` looks further.

func FuzzParseTaskID(f *testing.F) {
	for _, s := range []string{"", "-/t/k", "a/b/c/d/@", "x/y/", "a/b", "-/t/\x00", "é/t/k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		tenant, typ, key, err := ParseTaskID(id)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Equal(t, id, TaskID(tenant, typ, key))
		d := Draft{Tenant: tenant, Type: typ, Key: key}
		require.NoError(t, d.Validate(), "what was parsed can be sent")
	})
}

func FuzzParseHandle(f *testing.F) {
	h := Handle{TaskID: "-/t/k@1", Generation: 1767225600000, ExecID: "e"}.String()
	for _, s := range []string{"", h, h + "=", h + "A", h[:8] + "\r\n" + h[8:], "LS90L2tAMDFAZQ", "LS90L2tAKzFAZQ", "!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHandle(s)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Equal(t, s, h.String(), "a handle has one spelling")
		require.NotEmpty(t, h.ExecID)
	})
}

func FuzzEncodeJSON(f *testing.F) {
	for _, s := range []string{"", "null", `{"a":[1,-0,1.5e3,"x",null,true,{}]}`, `[1,]`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", `[[[`, `1e999`, `01`, `-`, `{"$a":1}`, `9223372036854775808`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		requireSameUnlessBlank(t, data)
		v, err := EncodeJSON("args", data, MaxArgsBytes)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
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
