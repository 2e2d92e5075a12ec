package mstest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
)

// Trip is what the nodes of a flow book. Each adds itself to what is booked.
type Trip struct {
	Booked []string `json:"booked"`
}

// tripFlow books a flight, then a hotel and a car, and then sends a mail.
func tripFlow(key string) graph.Spec {
	book := func(id string, after ...string) graph.NodeSpec {
		n := graph.NodeSpec{ID: id, Type: "trip." + id, After: after}
		if len(after) > 0 {
			n.Args = flow.Output(after[0])
		}
		return n
	}
	return graph.Spec{Key: key, Nodes: []graph.NodeSpec{book("flight"), book("hotel", "flight"), book("car", "flight"), book("mail", "hotel", "car")}}
}

// handleTrips registers a handler for each of the nodes. fails says what a node does instead.
func handleTrips(t *testing.T, c *consumer.Consumer, fails func(node string, attempt int) error, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		require.NoError(t, consumer.Handle(c, model.NewType[Trip, Trip]("trip."+node), func(_ context.Context, task *consumer.Task[Trip]) (Trip, error) {
			if err := fails(node, task.Attempt); err != nil {
				return Trip{}, err
			}
			return Trip{Booked: append(task.Args.Booked, node)}, nil
		}))
	}
}

// newTrips makes what a test of flows needs.
func newTrips(t *testing.T, fails func(node string, attempt int) error) (*mongo.Database, *flow.Flows, *consumer.Consumer) {
	t.Helper()
	db := mstest.DB(t)
	flows, err := flow.New(flow.Config{Database: db})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	handleTrips(t, c, fails, "flight", "hotel", "car", "mail")
	return db, flows, c
}

func endsWell(string, int) error { return nil }

// statuses are those of the nodes.
func statuses(t *testing.T, flows *flow.Flows, id string) map[string]graph.NodeStatus {
	t.Helper()
	views, err := flows.Nodes(t.Context(), id)
	require.NoError(t, err)
	out := map[string]graph.NodeStatus{}
	for _, v := range views {
		out[v.Node.Node] = v.Status
	}
	return out
}

// This is how a service tests a flow: its handlers run, and neither retries nor waits take time.

func TestATripIsBookedAlthoughTheHotelAnswersLate(t *testing.T) {
	_, flows, c := newTrips(t, func(node string, attempt int) error {
		switch {
		case node == "hotel" && attempt < 4:
			return errors.New("no answer") // it is retried, later and later
		case node == "car" && attempt == 1:
			return consumer.RetryAfter(24*time.Hour, errors.New("come tomorrow"))
		}
		return nil
	})
	trip, err := flows.Start(t.Context(), tripFlow("ann"))
	require.NoError(t, err)
	report := mstest.Drain(t, c, mstest.SkipTime(), mstest.With(flows.Drain))
	require.Equal(t, 4, report.Succeeded)
	require.Equal(t, 4, report.Errors)
	require.Greater(t, report.Skipped, 23*time.Hour)

	trip, err = flows.Get(t.Context(), trip.ID)
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, trip.Status)
	views, err := flows.Nodes(t.Context(), trip.ID)
	require.NoError(t, err)
	var mail Trip
	require.NoError(t, views[3].Output.Unmarshal(&mail))
	require.Equal(t, []string{"flight", "hotel", "mail"}, mail.Booked)
}

func TestATripWaitsForAPersonAndGoesOn(t *testing.T) {
	_, flows, c := newTrips(t, func(node string, _ int) error {
		if node == "hotel" {
			return consumer.Fatal(errors.New("no room"))
		}
		return nil
	})
	trip, err := flows.Start(t.Context(), tripFlow("ann"))
	require.NoError(t, err)
	require.Equal(t, 2, mstest.Drain(t, c, mstest.With(flows.Drain)).Succeeded)
	require.Equal(t, map[string]graph.NodeStatus{"flight": "SUCCESS", "hotel": "PENDING", "car": "SUCCESS", "mail": "PENDING"}, statuses(t, flows, trip.ID))
	_, err = flows.Resolve(t.Context(), trip.ID, "hotel", graph.NodeSuccess, "booked by phone")
	require.NoError(t, err)
	require.Equal(t, 1, mstest.Drain(t, c, mstest.With(flows.Drain)).Succeeded)
	trip, err = flows.Get(t.Context(), trip.ID)
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, trip.Status)
}

func TestAFlowThatATransactionStartedIsDrained(t *testing.T) {
	db, flows, c := newTrips(t, endsWell)
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	trip, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) { return flows.Start(ctx, tripFlow("ann")) })
	require.NoError(t, err)
	require.Equal(t, 4, mstest.Drain(t, c, mstest.With(flows.Drain)).Succeeded)
	done, err := flows.Get(t.Context(), trip.(*graph.Flow).ID)
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, done.Status)
}

// A worker dies with a node in its hands. Its lease lapses while the drain skips the time until
// another node's retry.
func TestANodeWhoseWorkerDiedIsTakenOver(t *testing.T) {
	db, flows, c := newTrips(t, func(node string, attempt int) error {
		if node == "hotel" && attempt == 1 {
			return consumer.RetryAfter(time.Hour, errors.New("busy"))
		}
		return nil
	})
	first, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	handleTrips(t, first, endsWell, "flight")
	trip, err := flows.Start(t.Context(), tripFlow("ann"))
	require.NoError(t, err)
	mstest.Drain(t, first, mstest.With(flows.Drain))
	views, err := flows.Nodes(t.Context(), trip.ID)
	require.NoError(t, err)
	car := slices.IndexFunc(views, func(v flow.NodeView) bool { return v.Node.Node == "car" })
	fakeworker.New(t, db, "").Claim(views[car].TaskID, "dead")
	require.Equal(t, graph.NodeRunning, statuses(t, flows, trip.ID)["car"])

	require.Equal(t, 3, mstest.Drain(t, c, mstest.SkipTime(), mstest.With(flows.Drain)).Succeeded)
	require.Equal(t, map[string]graph.NodeStatus{"flight": "SUCCESS", "hotel": "SUCCESS", "car": "SUCCESS", "mail": "SUCCESS"}, statuses(t, flows, trip.ID))
}

func TestWithoutSkippedTimeADrainLeavesANodeThatWaits(t *testing.T) {
	_, flows, c := newTrips(t, func(node string, attempt int) error {
		if node == "flight" && attempt == 1 {
			return consumer.RetryAfter(time.Hour, errors.New("busy"))
		}
		return nil
	})
	trip, err := flows.Start(t.Context(), tripFlow("ann"))
	require.NoError(t, err)
	require.Zero(t, mstest.Drain(t, c, mstest.With(flows.Drain)).Succeeded)
	require.Equal(t, graph.NodeReady, statuses(t, flows, trip.ID)["flight"])
	require.Equal(t, 4, mstest.Drain(t, c, mstest.SkipTime(), mstest.With(flows.Drain)).Succeeded)
}

func TestAStreamIsDrained(t *testing.T) {
	_, flows, c := newTrips(t, func(node string, attempt int) error {
		if node == "car" && attempt == 1 {
			return consumer.RetryAfter(time.Hour, errors.New("busy"))
		}
		return nil
	})
	add := func(nodes ...graph.NodeSpec) {
		t.Helper()
		_, err := flows.Append(t.Context(), "trips", "ann", nodes...)
		require.NoError(t, err)
	}
	add(graph.NodeSpec{Type: "trip.flight"}, graph.NodeSpec{Type: "trip.car"}, graph.NodeSpec{Type: "trip.hotel"})
	require.Equal(t, 1, mstest.Drain(t, c, mstest.With(flows.Drain)).Succeeded, "the car is busy, and the hotel comes after it")
	add(graph.NodeSpec{Type: "trip.mail"})
	require.Equal(t, 3, mstest.Drain(t, c, mstest.SkipTime(), mstest.With(flows.Drain)).Succeeded)
}

// A day's wait takes no time, and the flow that a node starts and the elements of another are drained
// with it.
func TestATripThatWaitsAndBooksForEachTravellerIsDrained(t *testing.T) {
	_, flows, c := newTrips(t, endsWell)
	hotels := graph.NodeSpec{ID: "hotel", Type: "trip.hotel", After: []string{"calm"}, Args: flow.Item(""), Each: &graph.Each{Items: flow.Arg("travellers"), Limit: 1}}
	car := graph.NodeSpec{ID: "car", After: []string{"calm"}, Args: flow.Output("flight"), Flow: &graph.Spec{Nodes: []graph.NodeSpec{{ID: "book", Type: "trip.car", Args: flow.Arg("")}}}}
	trip, err := flows.Start(t.Context(), graph.Spec{
		Key: "ann", Args: map[string]any{"travellers": []Trip{{Booked: []string{"ann"}}, {Booked: []string{"bob"}}}},
		Nodes: []graph.NodeSpec{
			{ID: "flight", Type: "trip.flight"},
			{ID: "calm", After: []string{"flight"}, Wait: &graph.Wait{For: 24 * time.Hour}},
			hotels, car,
			{ID: "mail", Type: "trip.mail", After: []string{"hotel", "car"}, Args: flow.Output("car")},
		},
	})
	require.NoError(t, err)
	report := mstest.Drain(t, c, mstest.SkipTime(), mstest.With(flows.Drain))
	require.Equal(t, 5, report.Succeeded)
	require.Greater(t, report.Skipped, 23*time.Hour)
	views, err := flows.Nodes(t.Context(), trip.ID)
	require.NoError(t, err)
	var each []Trip
	require.NoError(t, views[2].Output.Unmarshal(&each))
	require.Equal(t, []Trip{{Booked: []string{"ann", "hotel"}}, {Booked: []string{"bob", "hotel"}}}, each)
	var mail Trip
	require.NoError(t, views[4].Output.Unmarshal(&mail))
	require.Equal(t, []string{"flight", "car", "mail"}, mail.Booked)
	calm, err := flows.Get(t.Context(), trip.ID)
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, calm.Status)
	require.GreaterOrEqual(t, calm.States[1].At.Sub(calm.States[0].At), 24*time.Hour)
	require.Less(t, calm.States[1].At.Sub(calm.States[0].At), 25*time.Hour, "not two of them")
}
