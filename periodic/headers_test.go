package periodic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

func TestCredentialsInHeadersAreSealedHiddenKeptAndSent(t *testing.T) {
	h := newHooks(t)
	seen := make(chan string, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization") + " " + r.Header.Get("X-Other")
	})
	r := h.start(&schedule.HTTPTarget{URL: url, Headers: map[string]string{"authorization": "Bearer swordfish", "X-Other": "seen"}})
	require.Equal(t, "Bearer swordfish seen", testdb.Receive(t, seen))
	run := h.ends(r, schedule.RunSuccess)
	for collection, id := range map[string]string{"periodic_rules": r.ID, "tasks": run.TaskID} {
		var doc bson.Raw
		require.NoError(t, h.db.Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc))
		require.NotContains(t, doc.String(), "swordfish")
		require.Contains(t, doc.String(), "mss1.")
		var shown bson.D
		require.NoError(t, bson.Unmarshal(doc, &shown))
		secret.Hide(shown)
		require.NotContains(t, fmt.Sprint(shown), "mss1.")
	}
	r, err := h.p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	spec := periodic.SpecOf(r)
	require.Equal(t, map[string]string{"authorization": safetext.Hidden, "X-Other": "seen"}, spec.HTTP.Headers)
	spec.HTTP.Headers = map[string]string{"Authorization": safetext.Hidden, "X-Other": "changed"}
	r, err = h.p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err)
	h.trigger(r)
	require.Equal(t, "Bearer swordfish changed", testdb.Receive(t, seen))

	spec = periodic.SpecOf(r)
	spec.HTTP.Headers["Cookie"] = safetext.Hidden
	_, err = h.p.Update(t.Context(), r.ID, r.Version, spec)
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "http.headers.Cookie is ***, the mask of a hidden secret")
	spec.HTTP.Headers["Cookie"] = "{{tick}}"
	_, err = h.p.Update(t.Context(), r.ID, r.Version, spec)
	require.ErrorContains(t, err, `http.headers.Cookie has the placeholder "tick"`)
}

func TestWithoutAKeyCredentialsInHeadersAreHiddenAndKept(t *testing.T) {
	p, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "n", Cron: "@daily", HTTP: &schedule.HTTPTarget{
		URL: "http://example.org/", Headers: map[string]string{"X-Api-Key": "swordfish"},
	}})
	require.NoError(t, err)
	spec := periodic.SpecOf(r)
	require.Equal(t, safetext.Hidden, spec.HTTP.Headers["X-Api-Key"])
	r, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err)
	require.Contains(t, string(codec.ValueJSON(r.Task.Args)), "swordfish")
}

// wrong is a machine's clock that is two hours ahead.
type wrong struct{ clock.Clock }

func (w wrong) Now() time.Time { return w.Clock.Now().Add(2 * time.Hour) }

func TestCallsAreSignedAtTheDatabasesTime(t *testing.T) {
	db := testdb.New(t)
	box, err := secret.Parse("secret_key", secretKey)
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db, WorkerID: "w", Clock: wrong{clock.System()}})
	require.NoError(t, err)
	require.NoError(t, builtin.Register(c, builtin.Options{Targets: builtin.TargetOptions{Secrets: box}}))
	verified := make(chan error, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := callback.Verify(r, callback.Key{AccessKey: "ak", Secret: "hunter2"})
		verified <- err
	})
	keys, err := box.SealKeys("keys", []callback.Key{{AccessKey: "ak", Secret: "hunter2"}})
	require.NoError(t, err)
	prod, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(t.Context())) }()
	args, err := json.Marshal(httptarget.Target{URL: url, Keys: keys})
	require.NoError(t, err)
	_, err = prod.SendJSON(t.Context(), "mscheduler.http", args)
	require.NoError(t, err)
	engine(t, c.Run)
	require.NoError(t, testdb.Receive(t, verified))
}
