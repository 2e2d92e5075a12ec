package testdb

import (
	"testing"
	"time"
)

// Receive takes what comes out of a channel, and fails the test if nothing has come after [Patience]. From a closed
// channel it takes the zero value.
func Receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case v := <-ch:
		return v
	case <-late.C:
		t.Fatalf("nothing has come out of the channel within %v", Patience)
		panic("unreachable")
	}
}

// Eventually waits until a condition holds, and fails the test if it does not within [Patience]. The condition runs in
// the test's own goroutine, so it may use package require. what describes the condition.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(Patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("waited %v in vain: %s", Patience, what)
		}
	}
}
