package flow

// Output stands in the arguments of a node for the output of another node that comes before it, or
// for a part of that: Output("pay.receipt.no"). What is not there is null. As JSON it is
// {"$output": path}.
func Output(path string) any { return map[string]any{"$output": path} }

// Arg stands in the arguments of a node for the arguments of the flow, or for a part of them:
// Arg("order.id"). What is not there is null. As JSON it is {"$arg": path}.
func Arg(path string) any { return map[string]any{"$arg": path} }
