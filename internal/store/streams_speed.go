package store

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// Speed is how many nodes of a stream have ended lately.
type Speed struct{ FiveMinutes, Hour int64 }

// speedSpans are the times of a [Speed].
var speedSpans = [2]time.Duration{5 * time.Minute, time.Hour}

// speedSearch looks for the last node of a stream that ended before a time. The nodes of a stream end in the order
// of their positions, so the search gallops back from the last one that has ended, and then halves.
type speedSearch struct {
	id     string
	since  time.Time
	head   int64 // the position of the last node that has ended
	before int64 // one that ended before, 0 = the chain's beginning
	after  int64 // one that ended later, or the one behind the head
	step   int64 // of the gallop; 0 = it halves
}

// probe is the position to look at next.
func (x *speedSearch) probe() int64 {
	if x.step > 0 {
		return max(x.after-x.step, x.before+1)
	}
	return (x.before + x.after) / 2
}

// learn takes what is at the position of the probe.
func (x *speedSearch) learn(later bool) {
	at := x.probe()
	switch {
	case !later:
		x.before, x.step = at, 0
	case x.step > 0:
		x.after, x.step = at, 2*x.step
	default:
		x.after = at
	}
}

// nodeOver says whether a node has ended, as flowplan.Final does.
func nodeOver(s graph.NodeStatus) bool {
	return s == graph.NodeSuccess || s == graph.NodeError || s == graph.NodeSkipped
}

func (x *speedSearch) done() bool { return x.after-x.before <= 1 }

// StreamSpeeds counts the nodes of streams that have ended lately, by the ids of the streams. It is exact, and reads few
// documents, however many have ended: their numbers are those of the positions between. Index: chain.
func (s *Store) StreamSpeeds(ctx context.Context, streams []*graph.Flow, now time.Time) (map[string]Speed, error) {
	var all []*speedSearch
	for _, doc := range streams {
		head := int64(doc.Trimmed)
		var last time.Time // when the last one ended; zero = its record says
		for i := 0; i < len(doc.States) && nodeOver(doc.States[i].Status); i++ {
			head, last = head+1, doc.States[i].At
		}
		for _, span := range speedSpans {
			x := &speedSearch{id: doc.ID, since: now.Add(-span), head: head, after: head + 1, step: 1}
			switch {
			case last.IsZero():
			case last.Before(x.since):
				x.before = head
			default:
				x.after = head
			}
			all = append(all, x)
		}
	}
	for left := searching(all); len(left) > 0; left = searching(left) {
		for some := range slices.Chunk(left, waitingAsk) {
			later := make([]bool, len(some))
			questions := make([]Question, len(some))
			for i, x := range some {
				questions[i] = Question{
					coll: s.flowNodes, filter: bson.D{d("flow_id", x.id), d("position", x.probe())}, sort: fields("flow_id", "position"), limit: 1, projection: fields("status", "at"),
					take: func(raw bson.Raw) error {
						at, _ := raw.Lookup("at").TimeOK()
						status, _ := raw.Lookup("status").StringValueOK()
						later[i] = !nodeOver(graph.NodeStatus(status)) || !at.Before(x.since) // its end may not be recorded yet
						return nil
					},
				}
			}
			if err := s.Ask(ctx, "counting the nodes of streams that have ended", questions...); err != nil {
				return nil, err
			}
			for i, x := range some {
				x.learn(later[i]) // one without a record ended so long ago that it was deleted
			}
		}
	}
	out := make(map[string]Speed, len(streams))
	for i := 0; i < len(all); i += len(speedSpans) {
		out[all[i].id] = Speed{all[i].head - all[i].before, all[i+1].head - all[i+1].before}
	}
	return out, nil
}

// searching are those that go on.
func searching(all []*speedSearch) (left []*speedSearch) {
	for _, x := range all {
		if !x.done() {
			left = append(left, x)
		}
	}
	return left
}
