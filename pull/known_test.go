package pull

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/producer"
)

// asks fetches for the worker, and returns its document.
func (p *process) asks(r FetchRequest) *store.Worker {
	p.t.Helper()
	_, err := p.Fetch(p.t.Context(), r)
	require.NoError(p.t, err)
	return p.worker(r.WorkerID)
}

func (p *process) worker(id string) *store.Worker {
	p.t.Helper()
	w, err := p.room.Store.Workers.Get(p.t.Context(), id)
	require.NoError(p.t, err)
	return w
}

func TestAWorkerThatFetchesIsKnownByWhatItFetches(t *testing.T) {
	p := newProcess(t)
	w := p.asks(FetchRequest{WorkerID: "w", Types: []string{"mail"}, Tenants: []string{"acme"}})
	require.Equal(t, store.Pulling, w.Stream)
	require.Equal(t, []string{"mail"}, w.Types)
	require.Equal(t, &lifecycle.Conditions{Tenants: []string{"acme"}}, w.Only)
	require.True(t, w.Alive(p.serverTime()))
	require.Empty(t, p.asks(FetchRequest{WorkerID: "byCategory", Categories: []string{"sms"}}).Types)
	require.Nil(t, p.asks(FetchRequest{WorkerID: "engine", Types: []string{"mscheduler.plan"}}), "it gets none of these")

	p.pass(changeEvery)
	w = p.asks(FetchRequest{WorkerID: "w", Types: []string{"sms", "chat"}, Tenants: []string{"beta"}}) // another thread of it
	require.Equal(t, []string{"chat", "mail", "sms"}, w.Types)
	require.Equal(t, &lifecycle.Conditions{Tenants: []string{"acme", "beta"}}, w.Only)
	p.pass(changeEvery)
	require.Nil(t, p.asks(FetchRequest{WorkerID: "w", Types: []string{"mail"}}).Only, "also tasks of all tenants")
	p.pass(askedFor)
	w = p.asks(FetchRequest{WorkerID: "w", Types: []string{"sms"}})
	require.Equal(t, []string{"sms"}, w.Types, "it has asked for nothing else lately")
}

func TestOfAWorkerThatFetchesAgainLittleIsWritten(t *testing.T) {
	p := newProcess(t)
	for second := range 31 { // twice is the heartbeat
		p.asks(FetchRequest{WorkerID: "w", Types: []string{"mail"}})
		require.EqualValues(t, 1+second/30, p.beats.Load(), second)
		p.pass(time.Second)
	}
	before := p.beats.Load()
	for i := range 10 { // ever new types, two a second
		p.asks(FetchRequest{WorkerID: "v", Types: []string{string(rune('a' + i))}})
		p.pass(500 * time.Millisecond)
	}
	require.EqualValues(t, 1, p.beats.Load()-before)
}

func TestAWorkerThatPingsIsAliveAlthoughItFetchesNothing(t *testing.T) {
	p := newProcess(t)
	_, err := p.sender.SendJSON(t.Context(), "t", nil, producer.Lease(0, time.Hour))
	require.NoError(t, err)
	p.pass(10 * time.Millisecond)
	got := p.fetch("w")
	require.Len(t, got, 1)
	for range 8 {
		p.pass(15 * time.Second)
		_, err = p.Ping(t.Context(), got[0].Handle)
		require.NoError(t, err)
		require.True(t, p.worker("w").Alive(p.serverTime()))
	}
	p.pass(askedFor)
	require.False(t, p.worker("w").Alive(p.serverTime()))
	other, _ := doors(t, p.database, p.sundial) // another process
	_, err = other.Ping(t.Context(), got[0].Handle)
	require.NoError(t, err)
	require.True(t, p.worker("w").Alive(p.serverTime()), "another process has heard of it")
}
