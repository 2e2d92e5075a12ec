package access

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func TestABadTokenIsRefusedByItsFieldAndNothingIsStored(t *testing.T) {
	x := newGate(t)
	many := make([]string, maxTenants+1)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for field, change := range map[string]func(w *Wanted){
		"name is empty":               func(w *Wanted) { w.Name = "" },
		"name is":                     func(w *Wanted) { w.Name = "a\nb" },
		"role is":                     func(w *Wanted) { w.Role = "root" },
		"tenants is":                  func(w *Wanted) { w.Tenants = []string{"a", ""} },
		"tenants are 201; at most":    func(w *Wanted) { w.Tenants = many },
		"created_by has":              func(w *Wanted) { w.CreatedBy = strings.Repeat("x", 201) },
		"created_by is":               func(w *Wanted) { w.CreatedBy = "a\x1b[2J" },
		"expires_at is 2001-":         func(w *Wanted) { w.ExpiresAt = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) },
		"want a time within 100 year": func(w *Wanted) { w.ExpiresAt = time.Now().AddDate(101, 0, 0) },
	} {
		w := Wanted{Name: "n", Role: string(Viewer), CreatedBy: "me"}
		change(&w)
		text, token, err := Create(t.Context(), x.store, w)
		require.ErrorIs(t, err, model.ErrInvalid, field)
		require.ErrorContains(t, err, field)
		require.Empty(t, text)
		require.Nil(t, token)
	}
	_, _, err := Create(t.Context(), x.store, Wanted{Role: "root"})
	require.ErrorContains(t, err, "name is")
	require.ErrorContains(t, err, "role is", "all that is wrong is said at once")
	n, err := x.db.Collection("tokens").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestARevokedTokensDocumentStaysFor90Days(t *testing.T) {
	x := newGate(t)
	_, err := Revoke(t.Context(), x.store, goodID)
	require.ErrorIs(t, err, store.ErrUnknownToken)
	require.ErrorContains(t, err, goodID)

	_, token := x.create(Wanted{Name: "n", Role: string(Viewer), ExpiresAt: time.Now().AddDate(1, 0, 0)})
	first, err := Revoke(t.Context(), x.store, token.ID)
	require.NoError(t, err)
	require.WithinDuration(t, x.store.Clock.Now(), first.RevokedAt, time.Minute)
	require.Equal(t, 90*24*time.Hour, first.DeleteAt.Sub(first.RevokedAt))
	require.True(t, x.store.Clock.Skip(time.Hour))
	again, err := Revoke(t.Context(), x.store, token.ID)
	require.NoError(t, err)
	require.Equal(t, first, again, "it was revoked when it was revoked first")
}
