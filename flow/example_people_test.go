package flow_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// open makes the flows of an empty database, and a function that runs what is due.
func open(broke func() bool) (flows *flow.Flows, drain func()) {
	db := testdb.Example()
	c, flows := worker(db, broke), must(flow.New(flow.Config{Database: db}))
	return flows, func() { must(c.Drain(background, false, flows.Drain)) }
}

// RefundFlow refunds an order if a person agrees.
var RefundFlow = graph.Spec{Key: "refund-7", Nodes: []graph.NodeSpec{
	{ID: "agree", Ask: &graph.Ask{Title: "Refund order 7?", Fields: []graph.Field{{Name: "amount", Kind: "number", Required: true}}}},
	{ID: "refund", Type: "order.check", After: []string{"agree"}, Args: map[string]any{"id": "7"}},
}}

// A program runs an engine beside its worker, or in a process of its own.
func ExampleNew() {
	flows := must(flow.New(flow.Config{Database: testdb.Example()}))
	ctx, stop := context.WithCancel(background)
	ended := make(chan error)
	go func() { ended <- flows.Run(ctx) }()
	stop()
	fmt.Println(<-ended)
	// Output: <nil>
}

func ExampleFlows_Drain() {
	db := testdb.Example()
	c, flows := worker(db, never), must(flow.New(flow.Config{Database: db}))
	f := must(flows.Start(background, OrderFlow("7")))
	must(c.Drain(background, false, flows.Drain)) // runs tasks, and starts nodes, until nothing is due
	fmt.Println(must(flows.Get(background, f.ID)).Status)
	// Output:
	// shipping 2 parcels of order 7, receipt "r-7"
	// FINISH
}

func ExampleFlows_Get() {
	flows, _ := open(never)
	must(flows.Start(background, OrderFlow("7")))
	fmt.Println(must(flows.Get(background, "-/order-7")).Status)
	_, err := flows.Get(background, "-/order-8")
	fmt.Println(errors.Is(err, model.ErrNotFound))
	// Output:
	// RUNNING
	// true
}

// The last flow of a page is where the next page begins.
func ExampleFlows_List() {
	flows, _ := open(never)
	for _, id := range []string{"1", "2", "3"} {
		must(flows.Start(background, OrderFlow(id)))
	}
	n, last := 0, (*graph.Flow)(nil)
	for {
		page := must(flows.List(background, model.NoTenant, graph.StatusRunning, last, 2))
		if len(page) == 0 {
			break
		}
		n, last = n+len(page), page[len(page)-1]
	}
	fmt.Println(n)
	// Output: 3
}

func ExampleFlows_Nodes() {
	flows, drain := open(always)
	f := must(flows.Start(background, OrderFlow("7")))
	drain()
	for _, n := range must(flows.Nodes(background, f.ID)) {
		fmt.Printf("%s %s %q\n", n.ID, n.Status, n.ErrorInfo)
	}
	// Output:
	// -/order-7/check SUCCESS ""
	// -/order-7/pay PENDING "the card was declined"
	// -/order-7/pack SUCCESS ""
	// -/order-7/ship PENDING ""
}

func ExampleFlows_Answer() {
	flows, drain := open(never)
	f := must(flows.Start(background, RefundFlow))
	drain()
	_, err := flows.Answer(background, f.ID, "agree", map[string]any{"amount": "all"}, "")
	fmt.Println(errors.Is(err, model.ErrInvalid))
	must(flows.Answer(background, f.ID, "agree", map[string]any{"amount": 20}, "the parcel was late"))
	drain()
	fmt.Println(must(flows.Get(background, f.ID)).Status)
	// Output:
	// true
	// FINISH
}

func ExampleFlows_Cancel() {
	flows, drain := open(never)
	f := must(flows.Start(background, RefundFlow))
	drain()
	f = must(flows.Cancel(background, f.ID, "the customer has changed their mind"))
	fmt.Println(f.Status, f.Reason)
	// Output: FINISH the customer has changed their mind
}

// The nodes before the one that is retried do not run again.
func ExampleFlows_RetryFrom() {
	broke := true
	flows, drain := open(func() bool { return broke })
	f := must(flows.Start(background, OrderFlow("7")))
	drain()
	broke = false
	must(flows.RetryFrom(background, f.ID, "pay"))
	drain()
	fmt.Println(must(flows.Get(background, f.ID)).Status)
	// Output:
	// shipping 2 parcels of order 7, receipt "r-7"
	// FINISH
}

func ExampleFlows_Watch() {
	flows, stop := shop(testdb.Example(), never)
	defer stop()
	f := must(flows.Start(background, OrderFlow("7")))
	for e, err := range flows.Watch(background, f.ID) {
		if err != nil {
			panic(err)
		}
		if e.Node == "ship" && e.Status == graph.NodeSuccess {
			fmt.Println("order 7 is on its way")
		}
	}
	// Output:
	// shipping 2 parcels of order 7, receipt "r-7"
	// order 7 is on its way
}
