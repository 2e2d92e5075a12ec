package rest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// subscribed is a subscription that a test makes happen.
type subscribed struct {
	begun func(token string)
	tell  func([]happened)
	end   chan error
}

// quiet is a hub whose subscriptions do nothing of their own.
func quiet() (*hub, <-chan *subscribed) {
	made := make(chan *subscribed, 1)
	h := &hub{listeners: map[*listener]bool{}}
	h.source = func(_ context.Context, begun func(string), tell func([]happened)) error {
		s := &subscribed{begun, tell, make(chan error)}
		made <- s
		return <-s.end
	}
	return h, made
}

func everything(*happened) bool { return true }

// The client went away before its subscription began, and the database answers late.
func TestTheLateEndOfASubscriptionEndsNoOtherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, made := quiet()
		ctx, leave := context.WithCancel(t.Context())
		refused := make(chan error)
		go func() {
			_, err := h.listen(ctx, "", everything)
			refused <- err
		}()
		late := <-made
		leave()
		require.ErrorIs(t, <-refused, context.Canceled)

		joined := make(chan *listener)
		go func() {
			l, err := h.listen(t.Context(), "", everything)
			require.NoError(t, err)
			joined <- l
		}()
		next := <-made
		next.begun("next-0")
		l := <-joined
		late.begun("late-0")
		late.tell([]happened{{token: "late-1"}})
		late.end <- context.Canceled
		synctest.Wait()
		next.tell([]happened{{token: "next-1"}})
		e, listens := <-l.events
		require.True(t, listens)
		require.Equal(t, "next-1", e.token, "the other one tells nobody")
		again, err := h.listen(t.Context(), "next-0", everything)
		require.NoError(t, err)
		require.False(t, again.missed)
		require.Len(t, again.backlog, 1)

		next.end <- errors.New("lost")
		_, listens = <-l.events
		require.False(t, listens, "it comes back")
	})
}

func TestAListenerGetsWhatHappensAsSoonAsItsSubscriptionHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, made := quiet()
		joined := make(chan *listener)
		go func() {
			l, err := h.listen(t.Context(), "0", everything)
			require.NoError(t, err)
			joined <- l
		}()
		s := <-made
		s.begun("0")
		s.tell([]happened{{token: "1"}}) // before the request goes on
		l := <-joined
		require.False(t, l.missed)
		require.Len(t, l.backlog, 1)
		s.end <- nil
	})
}
