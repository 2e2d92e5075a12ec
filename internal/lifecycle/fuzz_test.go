package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// The seeds run in every test; `go test ./internal/lifecycle -fuzz FuzzEncodeJSON` looks further.

func FuzzParseTaskID(f *testing.F) {
	for _, s := range []string{"", "-/t/k", "a/b/c/d/@", "x/y/", "a/b", "-/t/\x00", "é/t/k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		tenant, typ, key, err := input.ParseTaskID(id)
		if err != nil {
			require.ErrorIs(t, err, model.ErrInvalid)
			return
		}
		require.Equal(t, id, model.TaskID(tenant, typ, key))
		d := Draft{Tenant: tenant, Type: typ, Key: key}
		require.NoError(t, d.Validate(), "what was parsed can be sent")
	})
}

func FuzzParseHandle(f *testing.F) {
	h := input.HandleOf(&model.Task{ID: "-/t/k@1", Generation: 1767225600000}, "e").String()
	for _, s := range []string{"", h, h + "=", h + "A", h[:8] + "\r\n" + h[8:], "LS90L2tAMDFAMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "LS90L2tAKzFAMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := input.ParseHandle(s)
		if err != nil {
			require.ErrorIs(t, err, model.ErrInvalid)
			return
		}
		require.Equal(t, s, h.String(), "a handle has one spelling")
	})
}
