package engine

import (
	"flag"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/embedded"
)

// pretend makes this test binary a server: see pretendMongod.
const pretend = "MSCHEDULER_TEST_PRETEND_MONGOD"

func TestMain(m *testing.M) {
	if os.Getenv(pretend) != "" {
		os.Exit(pretendMongod(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// pretendMongod understands mongod's flags that are used here. It is a replica set from
// the start, which mongod is only once it has been told.
func pretendMongod(args []string) int {
	flags := flag.NewFlagSet("mongod", flag.ContinueOnError)
	host := flags.String("bind_ip", "", "")
	port := flags.String("port", "", "")
	data := flags.String("dbpath", "", "")
	set := flags.String("replSet", "", "")
	flags.Bool("nounixsocket", false, "")
	if flags.Parse(args) != nil || *set == "" || os.Getenv(pretend) == "broken" {
		println("the pretended mongod is broken")
		return 2
	}
	server, err := embedded.Start(embedded.Options{Addr: *host + ":" + *port, Path: *data + "/data.db"})
	if err != nil {
		println(err.Error())
		return 1
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	_ = server.Close()
	return 0
}
