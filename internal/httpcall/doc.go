// Package httpcall makes the HTTP calls of the product: those of http tasks, of periodic rules and of
// callbacks. A use describes its call in a [Call]; all else is the same for all of them.
//
//	call.go     the call: request, signature, redirects, what its error means
//	answer.go   what is kept of an answer, and what is recorded of a call
//	reach.go    the hosts and addresses that a call may reach, directly and through a proxy
//	allow.go    the operator's allow list
//	address.go  link-local and cloud metadata addresses, in every notation
//	valid.go    what is wrong with a URL, a method, a header, a status
package httpcall
