// Package mstest is for the tests of services that use mscheduler: a database for each
// test, and ways to look at what was sent and to run it at once.
//
//	func TestWelcome(t *testing.T) {
//		db := mstest.DB(t)                                // fresh, dropped after the test
//		p, err := producer.New(producer.Config{Database: db})
//		c, err := consumer.New(consumer.Config{Database: db})
//		err = consumer.Handle(c, Welcome, welcome)
//		_, err = producer.Send(t.Context(), p, Welcome, WelcomeArgs{User: "ann"})
//		mstest.Sent(t, db, Welcome)                       // what was sent
//		mstest.Drain(t, c, mstest.SkipTime()).Succeeded   // retries and delays take no time
//		mstest.Drain(t, c, mstest.With(flows.Drain))      // flows are drained, too
//	}
//
// # Which database
//
// [DB] uses the deployment that MSCHEDULER_MONGODB_URI names; without one, a container of the image that
// MSCHEDULER_TEST_IMAGE names. The tests fail if that deployment refuses connections for ten seconds or accepts no
// writes for a minute, or if the container does not start. All tests of the process then fail with the same error. If
// neither variable is set, [DB] uses the first available engine in this order, and logs its choice once: mongod on
// PATH, started as a replica set of one member; a container of mongo:8, if Docker answers; else mscheduler's own
// embedded server, which needs nothing.
//
// One is started for all tests of a process and ends with it, or with [Close]. A container ends with the process only
// where testcontainers may run its Ryuk: with TESTCONTAINERS_RYUK_DISABLED=true, call [Close] in TestMain.
package mstest
