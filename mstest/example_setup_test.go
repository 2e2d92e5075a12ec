package mstest_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/mstest"
)

// exampleDatabase is a database for an example, which has no testing.T. It stays until
// the engine is closed, or is left behind where the engine is somebody else's.
func exampleDatabase() *mongo.Database { return mstest.DB(noTest{}) }

type noTest struct{ testing.TB }

func (noTest) Helper()                        {}
func (noTest) Context() context.Context       { return context.Background() }
func (noTest) Fatalf(format string, _ ...any) { panic(format) }
func (noTest) Cleanup(func())                 {}
