package mstest

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/container"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
)

// process is what all tests of this process share.
var process = engine.Shared{Engines: []engine.Engine{
	engine.URI(), engine.Mongod(), container.Engine(), engine.Embedded(embedded.Options{}),
}}

// DB is a fresh database on the best engine at hand (see the package comment), dropped
// when the test has ended. Tests may run in parallel, each with its own. It ends the test
// if MSCHEDULER_MONGODB_URI names a deployment that does not answer, or MSCHEDULER_TEST_IMAGE
// an image that does not start.
func DB(t testing.TB) *mongo.Database {
	t.Helper()
	return process.DB(t)
}

// Close ends what [DB] has started, and its client. Nobody needs to call it, since all of
// that ends with the process; it is for a TestMain that looks for leaked goroutines:
//
//	func TestMain(m *testing.M) {
//		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { mstest.Close(); os.Exit(code) }))
//	}
func Close() error { return process.Close() }
