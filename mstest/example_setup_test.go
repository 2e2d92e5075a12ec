package mstest_test

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/mstest"
)

// exampleDatabase is a database for an example, which has no testing.T. It is dropped
// after the last test.
func exampleDatabase() *mongo.Database { return mstest.DB(&examples) }

// examples stands in for the test that an example is not.
var examples noTest

type noTest struct {
	testing.TB
	cleanups []func()
}

func (*noTest) Helper()                           {}
func (*noTest) Context() context.Context          { return context.Background() }
func (*noTest) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*noTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (n *noTest) Cleanup(f func())                { n.cleanups = append(n.cleanups, f) }

func (n *noTest) cleanUp() {
	for _, f := range n.cleanups {
		f()
	}
}
