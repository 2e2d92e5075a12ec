package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

// Every query about some tokens reads those only, among thousands of others.
func TestEveryQueryAboutTokensReadsAnIndex(t *testing.T) {
	onEnginesAtFullSize(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		ctx, tokens := t.Context(), x.store.Tokens
		for i := range e.Of(1_000, 200) {
			time.Sleep(time.Millisecond) // those of one millisecond are read together
			require.NoError(t, tokens.Insert(ctx, &store.Token{ID: fmt.Sprintf("t%04d", i), Name: "n", Role: "viewer", Hash: []byte{1}}))
		}
		some := []string{"t0007", "t0008", "none"}
		x.explain("find", func() {
			found, err := tokens.ByIDs(ctx, some)
			require.NoError(t, err)
			require.Len(t, found, 2)
		}).within(t, 6, 2)
		var listed []string
		last := time.Time{}
		for after, more := (store.TokenPlace{}), true; more; more = after.ID != "" {
			x.explain("find", func() {
				page, unread, next, err := tokens.List(ctx, after, 90)
				require.NoError(t, err)
				require.Empty(t, unread)
				for _, token := range page {
					listed = append(listed, token.ID)
					require.False(t, token.CreatedAt.Before(last), "the oldest first")
					last = token.CreatedAt
				}
				after = next
			}).within(t, 150, 150) // those of the same millisecond, too
		}
		slices.Sort(listed)
		require.Len(t, slices.Compact(listed), e.Of(1_000, 200))
		x.explain("update", func() { require.NoError(t, tokens.Used(ctx, some)) }).within(t, 6, 2)
		x.explain("update", func() {
			revoked, err := tokens.Revoke(ctx, "t0009")
			require.NoError(t, err)
			require.False(t, revoked.RevokedAt.IsZero())
		}).within(t, 2, 1)
		found, err := tokens.ByIDs(ctx, some)
		require.NoError(t, err)
		for _, token := range found {
			require.False(t, token.LastUsedAt.IsZero())
		}
	})
}
