package flow_test

import (
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// ship is a node that ships an order. The nodes of a stream run one after the other.
func ship(order string) graph.NodeSpec {
	return graph.NodeSpec{ID: "ship-" + order, Type: "order.ship", Args: Order{ID: order, Parcels: 1}}
}

func ExampleFlows_Append() {
	flows, drain := open(never)
	fmt.Println(must(flows.Append(background, "customers", "ann", ship("7"), ship("8"))))
	fmt.Println(must(flows.Append(background, "customers", "ann", ship("8"), ship("9")))) // 8 is there already
	drain()
	// Output:
	// [ship-7 ship-8]
	// [ship-8 ship-9]
	// shipping 1 parcels of order 7, receipt ""
	// shipping 1 parcels of order 8, receipt ""
	// shipping 1 parcels of order 9, receipt ""
}

// A process that appends and ends at once waits until its nodes are linked.
func ExampleFlows_Flush() {
	flows, _ := open(never)
	must(flows.Append(background, "customers", "ann", ship("7")))
	fmt.Println(flows.Flush(background))
	fmt.Println(len(must(flows.Nodes(background, "customers/ann"))))
	// Output:
	// <nil>
	// 1
}

func ExampleFlows_Open() {
	flows, drain := open(never)
	must(flows.Append(background, "customers", "ann", ship("7")))
	drain()
	must(flows.Cancel(background, "customers/ann", "ann has moved"))
	_, err := flows.Append(background, "customers", "ann", ship("8"))
	fmt.Println(errors.As(err, new(*model.RefusedError)))

	must(flows.Open(background, "customers", "ann"))
	must(flows.Append(background, "customers", "ann", ship("8")))
	drain()
	// Output:
	// shipping 1 parcels of order 7, receipt ""
	// true
	// shipping 1 parcels of order 8, receipt ""
}

func ExampleFlows_SetCallback() {
	flows, _ := open(never)
	f := must(flows.SetCallback(background, "customers", "ann",
		&model.Callback{Error: &model.CallbackTarget{URL: "https://shop.example/alerts"}}, nil))
	fmt.Println(f.ID, f.Callback.Error.URL)
	// Output: customers/ann https://shop.example/alerts
}

func ExampleValidateAppend() {
	err := flow.ValidateAppend("customers", "ann", graph.NodeSpec{ID: "ship", Type: "order.ship", After: []string{"pay"}})
	fmt.Println(err)
	// Output: nodes[0].after (node ship) is given; in a stream each node follows the one before it
}
