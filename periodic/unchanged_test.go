package periodic_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// otherKey is a secret key, to rotate to.
var otherKey = strings.Repeat("0b", 32)

func withKey(t *testing.T, db *mongo.Database, key string) *periodic.Periodic {
	t.Helper()
	p, err := periodic.New(periodic.Config{Database: db, SecretKey: key})
	require.NoError(t, err)
	return p
}

// definitions are rules whose secrets are given, each with the parts that a program may write in another order.
func definitions() map[string]func() schedule.Spec {
	return map[string]func() schedule.Spec{
		"task": func() schedule.Spec {
			return schedule.Spec{
				Name: "task", Cron: "0 0 1 * * *", Type: "t", CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull},
				Args: map[string]any{"n": 1, "url": "http://h/", "headers": map[string]any{"Authorization": "Bearer swordfish"}},
				Ext:  map[string]any{"a": []any{1, "b"}},
			}
		},
		"http": func() schedule.Spec {
			return schedule.Spec{Name: "http", Cron: "@daily", HTTP: &schedule.HTTPTarget{URL: "http://h/?k=hunter2", Headers: map[string]string{"Authorization": "Bearer swordfish"}}}
		},
		"signed": func() schedule.Spec {
			s := schedule.Spec{Name: "signed", Cron: "@daily", HTTP: &schedule.HTTPTarget{URL: "http://h/", Keys: []callback.Key{{AccessKey: "ak", Secret: "hunter2"}}}}
			s.Options.Callback = signed("swordfish")
			return s
		},
	}
}

func TestAnUpdateThatChangesNothingWritesNothing(t *testing.T) {
	db := testdb.New(t)
	p := withKey(t, db, secretKey)
	for name, spec := range definitions() {
		created, err := p.Create(t.Context(), spec())
		require.NoError(t, err)
		stored := func() *schedule.Rule {
			t.Helper()
			r, err := p.Get(t.Context(), created.ID)
			require.NoError(t, err)
			return r
		}
		same := func(s schedule.Spec) {
			t.Helper()
			before := stored()
			after, err := p.Update(t.Context(), created.ID, before.Version, s)
			require.NoError(t, err, name)
			require.Equal(t, before, after, name)
			require.Equal(t, before, stored(), name)
		}
		same(spec())
		same(periodic.SpecOf(stored()))
		_, err = p.Update(t.Context(), created.ID, 7, spec())
		require.ErrorIs(t, err, model.ErrChanged)

		turned := func(enabled bool) *schedule.Rule {
			t.Helper()
			s := spec()
			s.Enabled = &enabled
			after, err := p.Update(t.Context(), created.ID, 1, s)
			require.NoError(t, err, name)
			require.Equal(t, enabled, after.Status == tickplan.StatusOnline)
			require.Equal(t, after, stored())
			same(s)
			return after
		}
		turned(true)
		require.EqualValues(t, 1, turned(false).Version, "a switch is no edit")
		off, err := p.Disable(t.Context(), created.ID, 0, "a note")
		require.NoError(t, err)
		require.Equal(t, off, turned(false), "the note stays")
	}
}

// Whoever applies a rule anew after a change of the key wants its secrets encrypted with that.
func TestASecretThatTheFirstKeyHasNotSealedIsSealedAgain(t *testing.T) {
	db := testdb.New(t)
	for name, spec := range definitions() {
		if name == "task" { // its headers are stored as they are given
			continue
		}
		r, err := withKey(t, db, secretKey).Create(t.Context(), spec())
		require.NoError(t, err)
		p := withKey(t, db, otherKey+","+secretKey)
		r, err = p.Update(t.Context(), r.ID, 1, periodic.SpecOf(r))
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Version, "no secret is given")
		r, err = p.Update(t.Context(), r.ID, 1, spec())
		require.NoError(t, err)
		require.EqualValues(t, 2, r.Version, name)
		r, err = p.Update(t.Context(), r.ID, 2, spec())
		require.NoError(t, err)
		require.EqualValues(t, 2, r.Version, name)
	}
}

func TestWithoutAKeyWhatIsStoredInTheClearIsCompared(t *testing.T) {
	p := withKey(t, testdb.New(t), "")
	spec := definitions()["http"]
	r, err := p.Create(t.Context(), spec())
	require.NoError(t, err)
	r, err = p.Update(t.Context(), r.ID, 1, spec())
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Version)
	s := spec()
	s.HTTP.Headers["Authorization"] = "Bearer trout"
	r, err = p.Update(t.Context(), r.ID, 1, s)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Version)
}
