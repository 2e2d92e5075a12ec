package admin

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestDocumentShowsFieldsOfALaterRelease(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	_, err := b.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: s.ID}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "novelty", Value: 1}}}})
	require.NoError(t, err)
	doc, err := b.a.Document(t.Context(), s.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, doc.Lookup("novelty").AsInt64())

	_, err = b.p.Cancel(t.Context(), s.ID, "")
	require.NoError(t, err)
	doc, err = b.a.Document(t.Context(), s.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, doc.Lookup("novelty").AsInt64(), "it survives our writes")
}

func TestPauseAndResumeTypesAndEverything(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	require.NoError(t, b.a.Pause(t.Context(), "mail", "sms"))
	require.NoError(t, b.a.Pause(t.Context(), "mail"))
	require.NoError(t, b.a.PauseAll(t.Context()))
	types, all, err := b.a.Paused(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"mail", "sms"}, types)
	require.True(t, all)
	require.NoError(t, b.a.ResumeAll(t.Context()))
	types, all, err = b.a.Paused(t.Context())
	require.NoError(t, err)
	require.False(t, all)
	require.Len(t, types, 2, "paused by name")
	require.NoError(t, b.a.Resume(t.Context(), "mail", "sms"))
	types, _, err = b.a.Paused(t.Context())
	require.NoError(t, err)
	require.Empty(t, types)
	require.NotZero(t, b.get(s.ID).WakeAt, "resuming wakes the workers")

	require.ErrorIs(t, b.a.Pause(t.Context(), "a/b"), model.ErrInvalid)
}

func TestALifeThatIsNotThereIsNotFoundOrInvalid(t *testing.T) {
	b := setup(t)
	for name, look := range map[string]func(id string) error{
		"document": func(id string) error { _, err := b.a.Document(t.Context(), id); return err },
		"life":     func(id string) error { _, err := b.a.Get(t.Context(), id, 1); return err },
	} {
		require.ErrorIs(t, look("-/mail/none"), model.ErrNotFound, name)
		require.ErrorIs(t, look("none"), model.ErrInvalid, name)
	}
}

func TestASettingIsNoPartOfATransaction(t *testing.T) {
	b := setup(t)
	testdb.RolledBack(t, b.db, func(ctx context.Context) {
		require.NoError(t, b.a.Pause(ctx, "mail", "sms"))
		require.NoError(t, b.a.Resume(ctx, "sms"))
		require.NoError(t, b.a.PauseAll(ctx))
		require.NoError(t, b.a.SetHistoryRetention(ctx, time.Hour))
	})
	types, all, err := b.a.Paused(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"mail"}, types)
	require.True(t, all)
	kept, err := b.a.HistoryRetention(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Hour, kept)
	testdb.RolledBack(t, b.db, func(ctx context.Context) { require.NoError(t, b.a.ResumeAll(ctx)) })
	_, all, err = b.a.Paused(t.Context())
	require.NoError(t, err)
	require.False(t, all)
}
