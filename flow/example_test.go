package flow_test

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Order is what the nodes know of an order.
type Order struct {
	ID      string `json:"id"`
	Receipt string `json:"receipt,omitempty"`
	Parcels int    `json:"parcels,omitempty"`
}

// OrderFlow charges the customer and packs the parcels at the same time, and ships when both are
// done. If the charge fails after its retries, the flow waits for a person.
func OrderFlow(id string) graph.Spec {
	order := map[string]any{"id": flow.Arg("order")}
	return graph.Spec{
		Key:  "order-" + id,
		Args: map[string]any{"order": id},
		Nodes: []graph.NodeSpec{
			{ID: "check", Type: "order.check", Args: order},
			{ID: "pay", Type: "order.pay", After: []string{"check"}, Args: order},
			{ID: "pack", Type: "order.pack", After: []string{"check"}, Args: order},
			{ID: "ship", Type: "order.ship", After: []string{"pay", "pack"}, Args: map[string]any{
				"id": flow.Arg("order"), "receipt": flow.Output("pay.receipt"), "parcels": flow.Output("pack.parcels"),
			}},
		},
	}
}

var background = context.Background()

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// worker has the handlers of orders. A payment fails as long as broke is set.
func worker(db *mongo.Database, broke func() bool) *consumer.Consumer {
	c := must(consumer.New(consumer.Config{Database: db}))
	for typ, does := range map[string]func(Order) (Order, error){
		"order.check": func(o Order) (Order, error) { return o, nil },
		"order.pack":  func(o Order) (Order, error) { return Order{ID: o.ID, Parcels: 2}, nil },
		"order.pay": func(o Order) (Order, error) {
			if broke() {
				return Order{}, consumer.Fatal(fmt.Errorf("the card was declined"))
			}
			return Order{ID: o.ID, Receipt: "r-" + o.ID}, nil
		},
		"order.ship": func(o Order) (Order, error) {
			fmt.Printf("shipping %d parcels of order %s, receipt %q\n", o.Parcels, o.ID, o.Receipt)
			return o, nil
		},
	} {
		must(0, consumer.Handle(c, model.NewType[Order, Order](typ), func(_ context.Context, t *consumer.Task[Order]) (Order, error) { return does(t.Args) }))
	}
	return c
}

// shop runs a worker and an engine of flows until stop is called.
func shop(db *mongo.Database, broke func() bool) (flows *flow.Flows, stop func()) {
	c := worker(db, broke)
	flows = must(flow.New(flow.Config{Database: db}))
	ctx, cancel := context.WithCancel(background)
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- flows.Run(ctx) }()
	return flows, func() {
		cancel()
		must(0, <-ended)
		must(0, <-ended)
	}
}

func never() bool  { return false }
func always() bool { return true }

func ExampleFlows_Start() {
	flows, stop := shop(testdb.Example(), never)
	defer stop()
	f := must(flows.Start(background, OrderFlow("7")))
	f = must(flows.Await(background, f.ID))
	fmt.Println(f.ID, f.Status)
	// Output:
	// shipping 2 parcels of order 7, receipt "r-7"
	// -/order-7 FINISH
}

// A node that failed waits for a person, and so does what hangs on it.
func ExampleFlows_Resolve() {
	flows, stop := shop(testdb.Example(), always)
	defer stop()
	f := must(flows.Start(background, OrderFlow("8")))
	f = must(flows.Await(background, f.ID))
	fmt.Println(f.Status, "because of", f.Reason)
	for _, sentence := range must(flows.Explain(background, f.ID, "ship")) {
		fmt.Println(sentence)
	}
	must(flows.Resolve(background, f.ID, "pay", graph.NodeSuccess, "paid in cash"))
	fmt.Println(must(flows.Await(background, f.ID)).Status)
	// Output:
	// PENDING because of node pay: its task failed: the card was declined
	// It is PENDING: blocked by pay, which is PENDING.
	// It starts when all its parents have succeeded.
	// Resolve pay to let it go on.
	// shipping 2 parcels of order 8, receipt ""
	// FINISH
}

func ExampleValidate() {
	err := flow.Validate(graph.Spec{Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", After: []string{"b"}},
		{ID: "b", Type: "t", After: []string{"a"}},
	}})
	fmt.Println(err)
	// Output:
	// nodes have no first node: each has a parent; want exactly one
	// nodes have no last node: each is the parent of another; want exactly one
	// nodes have a cycle: a -> b -> a
}
