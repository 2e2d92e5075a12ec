package mstest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/mstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(closing{m}, reaper)
}

// reaper is the connection that tells testcontainers' reaper that this process lives.
var reaper = goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1")

type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	examples.cleanUp()
	_ = mstest.Close() // goleak tells what it left
	testdb.Settle(reaper)
	return code
}
