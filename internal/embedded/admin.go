package embedded

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// The MongoDB this server passes for: what drivers and tools may expect of it.
const (
	version        = "5.0.7"
	maxWireVersion = 13
)

func runHello(r *request) (*docBuilder, error) {
	d := newDoc()
	if r.name == "hello" {
		d.bool("isWritablePrimary", true)
	} else {
		d.bool("helloOk", true).bool("ismaster", true)
	}
	me := r.s.Addr()
	d.any("hosts", []string{me}).string("setName", "rs0").int32("setVersion", 1)
	d.string("me", me).string("primary", me).bool("secondary", false)
	d.any("electionId", bson.ObjectID{})
	d.int32("maxBsonObjectSize", wire.MaxDocument).int32("maxMessageSizeBytes", wire.MaxMessage)
	d.int32("maxWriteBatchSize", wire.MaxBatch)
	d.date("localTime", bson.NewDateTimeFromTime(r.s.opt.Now()))
	d.int32("logicalSessionTimeoutMinutes", int(r.s.opt.SessionTimeout/time.Minute))
	d.int32("connectionId", int(r.c.id)).int32("minWireVersion", 0).int32("maxWireVersion", maxWireVersion)
	d.bool("readOnly", false)
	return d, nil
}

func runPing(*request) (*docBuilder, error) { return newDoc(), nil }

func runBuildInfo(*request) (*docBuilder, error) {
	return newDoc().string("version", version).any("versionArray", []int32{5, 0, 7, 0}).
		string("gitVersion", "mscheduler").any("modules", []string{}).
		bool("mschedulerEmbedded", true). // tells tools (doctor) what they talk to
		int32("bits", 64).bool("debug", false).int32("maxBsonObjectSize", wire.MaxDocument).
		any("storageEngines", []string{"mscheduler"}), nil
}

func runGetParameter(r *request) (*docBuilder, error) {
	known := map[string]any{
		"featureCompatibilityVersion":     bson.D{{Key: "version", Value: "5.0"}},
		"transactionLifetimeLimitSeconds": int32(r.s.opt.TransactionLifetime / time.Second),
		"localLogicalSessionTimeoutMinutes": int32(
			r.s.opt.SessionTimeout / time.Minute),
		"cursorTimeoutMillis": r.s.opt.CursorTimeout.Milliseconds(),
	}
	d := newDoc()
	star, _ := r.args[0].value.StringValueOK()
	for name, v := range known {
		if star == "*" || r.get(name).Type != 0 {
			d.any(name, v)
		}
	}
	return d, nil
}

func runConnectionStatus(*request) (*docBuilder, error) {
	return newDoc().openDoc("authInfo").any("authenticatedUsers", bson.A{}).any("authenticatedUserRoles", bson.A{}).close(), nil
}

func runReplSetGetStatus(r *request) (*docBuilder, error) {
	now := r.s.store.ClusterTime()
	member := newDoc().int32("_id", 0).string("name", r.s.Addr()).double("health", 1).int32("state", 1).
		string("stateStr", "PRIMARY").bool("self", true).end()
	return newDoc().string("set", "rs0").date("date", bson.NewDateTimeFromTime(r.s.opt.Now())).int32("myState", 1).
		timestamp("optime", now).openArray("members").doc("0", member).close(), nil
}

func runServerStatus(r *request) (*docBuilder, error) {
	d := newDoc().string("host", r.s.Addr()).string("version", version).string("process", "mscheduler embedded")
	d.date("localTime", bson.NewDateTimeFromTime(r.s.opt.Now()))
	d.openDoc("storageEngine").string("name", "mscheduler").bool("persistent", r.s.opt.Path != "").close()
	r.s.mu.Lock()
	d.openDoc("connections").int32("current", len(r.s.conns)).close()
	r.s.mu.Unlock()
	d.openDoc("metrics").openDoc("commands")
	for name, n := range r.s.counts {
		d.openDoc(name).int64("total", n.Load()).close()
	}
	return d.close().close(), nil
}

func runCollStats(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	d := newDoc().string("ns", ns)
	c := r.collection(ns)
	if c == nil {
		return d.int32("count", 0).int32("nindexes", 0), nil
	}
	size := c.Bytes()
	d.int64("size", size).int32("count", c.Len()).int32("nindexes", len(c.Indexes))
	if c.Len() > 0 {
		d.int64("avgObjSize", size/int64(c.Len()))
	}
	d.openDoc("indexKeys")
	for _, x := range c.Indexes {
		d.int32(x.Spec.Name, x.Len())
	}
	return d.close(), nil
}

func runDBStats(r *request) (*docBuilder, error) {
	collections, objects, indexes := 0, 0, 0
	var size int64
	r.s.store.Snapshot().Each(func(c *storage.Collection) bool {
		if strings.HasPrefix(c.Namespace, r.db+".") {
			collections++
			objects += c.Len()
			indexes += len(c.Indexes)
			size += c.Bytes()
		}
		return true
	})
	return newDoc().string("db", r.db).int32("collections", collections).int32("objects", objects).
		double("dataSize", float64(size)).int32("indexes", indexes), nil
}

func runValidate(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	c := r.collection(ns)
	if c == nil {
		return nil, mongoerr.New(mongoerr.NamespaceNotFound, "Collection '%s' does not exist to validate.", ns)
	}
	problems, err := c.Validate(r.ctx)
	if err != nil {
		return nil, err
	}
	return newDoc().string("ns", ns).int32("nrecords", c.Len()).int32("nIndexes", len(c.Indexes)).
		bool("valid", len(problems) == 0).any("errors", append([]string{}, problems...)), nil
}
