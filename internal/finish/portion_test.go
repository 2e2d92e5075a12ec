package finish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestPortionsKeepTheOrderAndTheirSize(t *testing.T) {
	of := func(sizes ...int) (out [][]int) {
		for p := range portions(sizes, func(n int) int { return n }) {
			out = append(out, p)
		}
		return out
	}
	require.Empty(t, of())
	require.Equal(t, [][]int{{0, 1, 2}}, of(0, 1, 2))
	require.Equal(t, [][]int{{portionBytes}, {1, portionBytes - 1}, {1}}, of(portionBytes, 1, portionBytes-1, 1))
	require.Equal(t, [][]int{{1}, {portionBytes + 9}, {2, 3}}, of(1, portionBytes+9, 2, 3), "what is larger is written alone")
	for range portions([]int{portionBytes, portionBytes}, func(n int) int { return n }) {
		break
	}
}

// inFlight notes how many bytes of updates a client has sent at most before they were answered.
type inFlight struct {
	mu        sync.Mutex
	sent      map[int64]int
	now, most int
}

func (f *inFlight) monitor() *event.CommandMonitor {
	over := func(id int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now -= f.sent[id]
		delete(f.sent, id)
	}
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "update" {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.sent[e.RequestID] = len(e.Command)
				f.now += len(e.Command)
				f.most = max(f.most, f.now)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { over(e.RequestID) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { over(e.RequestID) },
	}
}

// A call has twenty seconds. Over a slow link a batch of large results takes longer, however often it is tried.
func TestNoCallWritesMoreThanAPortion(t *testing.T) {
	const n = 10
	f := &inFlight{sent: map[int64]int{}}
	w, steps := roomOn(t, testdb.Watched(t, f.monitor()))
	large := func(i int) bson.RawValue {
		v, err := codec.EncodeJSON("v", []byte(`"`+strings.Repeat(fmt.Sprint(i), input.MaxResultBytes-100)+`"`), input.MaxResultBytes)
		require.NoError(t, err)
		return v
	}
	ends, told := make([]*End, n), make(chan string, n)
	items := make([]*stepItem, n)
	for i := range ends {
		e, l := w.claimed(t, fmt.Sprint(i))
		e.Out.Result, l.heard = large(i), told
		ends[i] = e
		items[i] = &stepItem{of: stepping{e.Claimed.ID, "e"}, step: model.Step{Name: "s", WorkerID: "w", Value: large(i)}, waiting: t.Context(), done: make(chan struct{})}
	}
	steps.flush(slices.Clone(items))
	for _, i := range items {
		<-i.done
		require.NoError(t, i.err)
	}
	w.flush(ends)
	for range n {
		require.Equal(t, "ended: Success", <-told)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Greater(t, f.most, input.MaxResultBytes)
	require.Less(t, f.most, 5<<20, "a link of 2 Mbit/s carries it in twenty seconds")
}
