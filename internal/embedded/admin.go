package embedded

import (
	"encoding/binary"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// The MongoDB this server passes for: what drivers and tools may expect of it.
const (
	version        = "5.0.7"
	maxWireVersion = 13
)

func runHello(r *request) (*docBuilder, error) {
	d := newDoc()
	if r.of == "hello" {
		d.bool("isWritablePrimary", true)
	} else {
		d.bool("helloOk", true).bool("ismaster", true)
	}
	me := r.c.nc.LocalAddr().String() // as the client reached it: the server may listen on all
	d.any("hosts", []string{me}).string("setName", "rs0").int32("setVersion", 1)
	d.string("me", me).string("primary", me).bool("secondary", false)
	d.any("electionId", r.s.election)
	d.int32("maxBsonObjectSize", wire.MaxDocument).int32("maxMessageSizeBytes", wire.MaxMessage)
	d.int32("maxWriteBatchSize", wire.MaxBatch)
	d.any("localTime", bson.NewDateTimeFromTime(r.s.opt.Now()))
	d.int32("logicalSessionTimeoutMinutes", int(r.s.opt.SessionTimeout/time.Minute))
	d.int32("connectionId", int(r.c.id)).int32("minWireVersion", 0).int32("maxWireVersion", maxWireVersion)
	d.bool("readOnly", false)
	return d, nil
}

// newElection is the electionId of a server that starts at the time. As MongoDB's it begins
// with 7fffffff and grows, because drivers refuse a primary with a smaller one than they
// have seen; here each start counts as an election.
func newElection(now time.Time) (id bson.ObjectID) {
	binary.BigEndian.PutUint32(id[:], 0x7fffffff)
	binary.BigEndian.PutUint64(id[4:], uint64(now.UnixNano()))
	return id
}

func runPing(*request) (*docBuilder, error) { return newDoc(), nil }

func runBuildInfo(*request) (*docBuilder, error) {
	return newDoc().string("version", version).any("versionArray", []int32{5, 0, 7, 0}).
		string("gitVersion", "mscheduler").any("modules", []string{}).
		bool("mschedulerEmbedded", true). // tells tools (doctor) what they talk to
		int32("bits", 64).bool("debug", false).int32("maxBsonObjectSize", wire.MaxDocument).
		any("storageEngines", []string{"mscheduler"}), nil
}

func runValidate(r *request) (*docBuilder, error) {
	ns, c := r.existing()
	if r.err != nil {
		return nil, r.err
	}
	problems, err := c.Validate(r.ctx)
	return newDoc().string("ns", ns).int32("nrecords", c.Len()).int32("nIndexes", len(c.Indexes)).
		bool("valid", len(problems) == 0).any("errors", append([]string{}, problems...)), err
}
