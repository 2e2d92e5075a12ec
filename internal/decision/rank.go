package decision

import (
	"context"
	"hash/fnv"
	"os"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

const (
	// yieldTime is how long the others leave a document to the engine whose turn it is. Then
	// each has its turn for a while, in a backlog for longer.
	yieldTime = 400 * time.Millisecond
	shortTurn = yieldTime / 2
	longTurn  = 5 * yieldTime
	backlog   = 10 * yieldTime
)

// rank is an engine's place among those that are alive, and what it has seen of the others.
type rank struct {
	place  int
	peers  []peer // by place; this engine is one of them
	absent int    // how many of them seem to be away
	seen   sights
}

// turn says whether it is this engine's turn to decide about a document that is so late. The
// first is always the same; what it has not decided in its time is the next engine's, and so on:
// also when all are late, no two work on the same documents. Those that seem to be away have no
// turns.
func (k *rank) turn(id string, late time.Duration) bool {
	return k.holder(k.first(id), turnsOver(late)) == k.place
}

// first is the engine that decides about a document, if it is there.
func (k *rank) first(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(uint64(h.Sum32()) % uint64(max(len(k.peers), 1)))
}

// holder is whose turn it is when so many turns are over.
func (k *rank) holder(first, over int) int {
	if len(k.peers) == 0 { // it is alone, or has not told yet that it lives
		return k.place
	}
	over %= len(k.peers) - k.absent
	for place := first; ; place = (place + 1) % len(k.peers) {
		if k.away(place) {
			continue
		}
		if over == 0 {
			return place
		}
		over--
	}
}

// turnsOver is how many turns are over when a document is so late.
func turnsOver(late time.Duration) int {
	switch {
	case late >= backlog:
		return int(late / longTurn)
	case late >= yieldTime:
		return 1 + int((late-yieldTime)/shortTurn)
	default:
		return 0
	}
}

// turnEnds is how long it takes until the turn of whoever has it now is over.
func turnEnds(late time.Duration) time.Duration {
	switch {
	case late >= backlog:
		return longTurn - late%longTurn
	case late >= yieldTime:
		return shortTurn - (late-yieldTime)%shortTurn
	default:
		return yieldTime - late
	}
}

// document is what the others know of an engine of this process.
func document(id string, kinds []string) store.Worker {
	host, _ := os.Hostname()
	return store.Worker{ID: id, Host: host, PID: os.Getpid(), Types: kinds, Stream: "off", NoDrain: true}
}

// beat tells that this engine is alive, reads the database's clock, and learns the engine's rank
// among those of each kind.
func (e *Engine) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e.beaten = e.local().Monotonic()
	st := e.members[0].store
	kinds := make([]string, len(e.members))
	for i, m := range e.members {
		kinds[i] = m.kind
	}
	err := st.Workers.Heartbeat(ctx, document(e.id, kinds))
	if err != nil {
		return err
	}
	workers, err := st.Workers.List(ctx)
	if err != nil {
		return err
	}
	now := st.Clock.Now()
	for _, m := range e.members {
		var engines []peer
		for _, w := range workers {
			if slices.Contains(w.Types, m.kind) && w.Alive(now) {
				engines = append(engines, peer{id: w.ID, beat: w.HeartbeatAt})
			}
		}
		m.rank.become(e.id, engines)
	}
	return nil
}
