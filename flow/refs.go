package flow

// Output refers to the output of an earlier node, or to a part of it, in the arguments of a node:
// Output("pay.receipt.no"). A missing value is null. In JSON the reference is {"$output": path}.
func Output(path string) any { return map[string]any{"$output": path} }

// Item refers to the element of a task, or to a part of it, in the arguments of a node with elements:
// Item("id"). A missing value is null. In JSON the reference is {"$item": path}.
func Item(path string) any { return map[string]any{"$item": path} }

// Arg refers to the arguments of the flow, or to a part of them, in the arguments of a node:
// Arg("order.id"). A missing value is null. In JSON the reference is {"$arg": path}.
func Arg(path string) any { return map[string]any{"$arg": path} }
