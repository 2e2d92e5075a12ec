package periodic_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func signed(secret string) *model.Callback {
	return &model.Callback{
		Success:  &model.CallbackTarget{URL: "http://example.org/"},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "shop", Secret: secret}}},
	}
}

// secrets are what is stored of a rule's, opened.
func secrets(t *testing.T, r *schedule.Rule) (ofCallback, ofCall string) {
	box, err := secret.Parse("secret_key", secretKey)
	require.NoError(t, err)
	keys, err := box.OpenKeys(r.Task.Options.Callback.Security.Keys)
	require.NoError(t, err)
	var args struct {
		Keys []struct{ AK, SK string }
	}
	require.NoError(t, codec.DecodeValue(r.Task.Args, &args))
	call, err := box.Open(args.Keys[0].SK, args.Keys[0].AK)
	require.NoError(t, err)
	return keys[0].Secret, call
}

func TestSecretsOfARuleAreSealedHiddenAndKept(t *testing.T) {
	p, err := periodic.New(periodic.Config{Database: testdb.New(t), SecretKey: secretKey})
	require.NoError(t, err)
	said := schedule.Spec{
		Name: "n", Cron: "0 0 1 1 *", Options: model.Options{Callback: signed("hunter2")},
		HTTP: &schedule.HTTPTarget{URL: "http://example.org/", Keys: []callback.Key{{AccessKey: "ak", Secret: "swordfish"}}},
	}
	r, err := p.Create(t.Context(), said)
	require.NoError(t, err)
	require.Equal(t, "hunter2", said.Options.Callback.Security.Keys[0].Secret, "the caller's own is left alone")
	check := func(id, ofCallback, ofCall string) *schedule.Rule {
		t.Helper()
		r, err := p.Get(t.Context(), id)
		require.NoError(t, err)
		gotCallback, gotCall := secrets(t, r)
		require.Equal(t, ofCallback+" "+ofCall, gotCallback+" "+gotCall)
		return r
	}
	r = check(r.ID, "hunter2", "swordfish")
	spec := periodic.SpecOf(r)
	require.Equal(t, safetext.Hidden, spec.Options.Callback.Security.Keys[0].Secret)
	require.Equal(t, safetext.Hidden, spec.HTTP.Keys[0].Secret)
	require.NotContains(t, fmt.Sprintf("%+v %#v", spec.HTTP, spec.Options.Callback.Security), "mss1.")

	spec.Description = "changed"
	r, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err, "what is not shown may be given back")
	r = check(r.ID, "hunter2", "swordfish")

	spec.HTTP.Keys = []callback.Key{{AccessKey: "ak", Secret: "new"}}
	r, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err)
	r = check(r.ID, "hunter2", "new")

	spec.Options.Callback.Security.Keys[0].AccessKey = "other"
	_, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.ErrorIs(t, err, model.ErrInvalid, "of another key nothing is stored")
	require.ErrorContains(t, err, "callback.security.keys[0].sk is ***")
}

func TestTheEndOfARunIsCalledBackSignedWithTheRulesKey(t *testing.T) {
	h := newHooks(t)
	called := target(t, func(http.ResponseWriter, *http.Request) {})
	told := make(chan error, 10)
	hook := target(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := callback.Verify(r, callback.Key{AccessKey: "shop", Secret: "hunter2"})
		told <- err
	})
	r := h.start(&schedule.HTTPTarget{URL: called}, func(s *schedule.Spec) {
		s.Options.Callback = signed("hunter2")
		s.Options.Callback.Success.URL = hook
	})
	require.NoError(t, testdb.Receive(t, told))
	task, err := h.prod.Get(t.Context(), h.ends(r, schedule.RunSuccess).TaskID)
	require.NoError(t, err)
	require.True(t, secret.Sealed(task.Options.Callback.Security.Keys[0].Secret))
}
