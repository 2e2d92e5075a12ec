// Package repeat holds the documents of plans: the definition by a caller ([Spec]), the stored plan
// ([Plan], collection plans, and plan_history when it is over) and the result of each participant of
// a step ([Result], collection plan_results).
package repeat
