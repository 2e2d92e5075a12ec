// Package measure counts what a process does, for package metrics and for the series that charts show.
// Counting is a few atomic additions where the work is done; whoever reads pays for the rest. Nothing here
// knows Prometheus, so services that do not export metrics do not link it.
package measure

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// Set is what this process has measured of one database since its start. The zero value is ready, and all
// of it is safe for concurrent use.
type Set struct {
	Types Family[Type] // by type of task

	Attempted, Won atomic.Int64 // claims
	TakenOver      atomic.Int64 // tasks after the leases of others
	ClaimBatch     Sizes        // tasks that one command claims
	EndBatch       Sizes        // ends that one command writes

	Lateness Family[Durations]    // by kind of document: how late an engine decided what was due
	Ticks    Family[atomic.Int64] // by what became of them

	workers  workers
	recorder recorder
}

// Claimed counts claims that were written.
func (s *Set) Claimed(attempted, won int) {
	s.Attempted.Add(int64(attempted))
	s.Won.Add(int64(won))
}

// Type is what was measured of the tasks of one type.
type Type struct {
	Delay Durations            // from due to started
	Ran   Durations            // from started to returned
	Ended Family[atomic.Int64] // executions, by outcome
}

// Success is the outcome of an execution without an error, for [Type].Ended.
const Success = "success"

// Failures are the errors of all databases, by class.
var Failures Family[atomic.Int64]

// sets are those that somebody uses.
var sets struct {
	sync.Mutex
	of map[any]weak.Pointer[Set]
}

// Of returns the set of a database, which the key names. All of the process that works on the database
// shares it.
func Of[K comparable](key K) *Set {
	sets.Lock()
	defer sets.Unlock()
	if s := sets.of[key].Value(); s != nil {
		return s
	}
	if sets.of == nil {
		sets.of = map[any]weak.Pointer[Set]{}
	}
	s := new(Set)
	sets.of[key] = weak.Make(s)
	runtime.AddCleanup(s, forget, any(key))
	return s
}

// forget removes what is left of a set that nobody uses.
func forget(key any) {
	sets.Lock()
	defer sets.Unlock()
	if sets.of[key].Value() == nil {
		delete(sets.of, key)
	}
}
