package cli

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/workerevent"
)

// stuck is a reader that keeps its pipe open and reads nothing.
type stuck struct{ free chan struct{} }

func (s stuck) Write(b []byte) (int, error) {
	<-s.free
	return len(b), nil
}

func TestAReaderOfEventsThatStopsReadingHoldsUpNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := stuck{make(chan struct{})}
		e := newEventWriter(out)
		e.take(consumer.Event{Kind: workerevent.Claimed})
		synctest.Wait()
		ended := make(chan struct{})
		go func() {
			e.close()
			close(ended)
		}()
		<-ended // a stop that waits for the reader would be a deadlock here
		close(out.free)
		<-e.done
		require.Empty(t, e.waiting)
	})
}
