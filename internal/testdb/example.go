package testdb

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Example is [New] for an example, which has no testing.T. [Main] drops the database.
func Example() *mongo.Database { return process.DB(&examples) }

// ExampleURI is [URI] for an example.
func ExampleURI() string { return process.Deployment(&examples).URI }

var examples noTest

// noTest stands in for the test that an example is not.
type noTest struct {
	testing.TB
	cleanups []func()
}

func (*noTest) Helper()                           {}
func (*noTest) Context() context.Context          { return context.Background() }
func (*noTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*noTest) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (n *noTest) Cleanup(f func())                { n.cleanups = append(n.cleanups, f) }

func (n *noTest) cleanUp() {
	for _, f := range n.cleanups {
		f()
	}
}
