// Package limits carries out what a type says about how many of its tasks run and how many
// begin, over the whole fleet: for the type, and for each limit_key of it. Whoever claims
// asks a [Gate] before; who ended an execution tells it after.
//
//	candidates ─▶ Admit ─┬─ granted ─▶ the claim ─▶ the execution ─▶ its end ─▶ Free
//	                     ├─ the key is full: held back, until its turn (Look)
//	                     └─ the type is full: the type leaves the queries for a moment
//
// The order of the writes is what keeps the promise. A permit is taken before the claim and
// given back after the end, so a crash anywhere leaves a permit too many taken, never one
// too few; [Gate.Sweep] frees those, once it is sure that no claim by them can come.
package limits
