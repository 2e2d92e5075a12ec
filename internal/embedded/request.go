package embedded

import (
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// request is one command, taken apart.
type request struct {
	fields
	s    *Server
	c    *conn
	ctx  *opContext
	cmd  *command
	db   string
	docs map[string][]bson.Raw // document sequences

	session     *session // nil without lsid
	txnNumber   int64    // -1: none
	inTxn       bool     // autocommit: false
	startsTxn   bool
	txn         *storage.Txn // the open transaction the command belongs to
	failedWrite bool         // a statement failed: a transaction ends with that
}

func newRequest(c *conn, m *wire.Message, ctx *opContext) (*request, error) {
	r := &request{s: c.s, c: c, ctx: ctx, db: m.Database, txnNumber: -1}
	if err := r.name(m.Body, "no such command: '%s'"); err != nil {
		return nil, err
	}
	r.read(m.Body, r.cmd.known, 1)
	for _, seq := range m.Sequences {
		if r.docs == nil {
			r.docs = map[string][]bson.Raw{}
		}
		_, twice := r.docs[seq.Name]
		isList := slices.Contains([]string{"documents", "updates", "deletes"}, seq.Name)
		if twice || !isList || r.get(seq.Name).Type != 0 || r.cmd.known[seq.Name] != isKnown {
			r.fail(mongoerr.New(40415, "BSON field '%s.%s' is a duplicate field, or no list of documents", r.of, seq.Name))
		}
		r.docs[seq.Name] = seq.Docs
	}
	r.parseGeneral()
	return r, r.err
}

// name finds the command that a document's first field names.
func (r *request) name(cmd bson.Raw, unknown string) error {
	it := value.NewIter(cmd)
	it.Next()
	r.of = string(it.Key)
	if r.cmd = commands[r.of]; r.cmd != nil {
		return nil
	}
	if _, known := refusedCommands[r.of]; known {
		return mongoerr.NotImplemented("the command " + r.of)
	}
	return mongoerr.New(mongoerr.CommandNotFound, unknown, r.of)
}

// parseGeneral reads what may come with every command.
func (r *request) parseGeneral() {
	if db := r.get("$db"); db.Type == bson.TypeString {
		r.db = db.StringValue()
	}
	if r.db == "" {
		r.fail(mongoerr.New(40571, "OP_MSG requests require a $db argument"))
	}
	r.fail(storage.CheckDatabase(r.db))
	if r.cmd.admin && r.db != "admin" {
		r.fail(mongoerr.New(mongoerr.Unauthorized, "%s may only be run against the admin database.", r.of))
	}
	ms := r.integer("maxTimeMS", 0)
	if ms < 0 || ms > math.MaxInt32 {
		r.fail(mongoerr.New(mongoerr.BadValue, "%d value for maxTimeMS is out of range [0, %d]", ms, math.MaxInt32))
	}
	r.ctx.maxTime, r.ctx.start = time.Duration(ms)*time.Millisecond, r.s.opt.Now()
	if v := r.get("apiVersion"); v.Type != 0 && !value.Equal(v, value.String("1")) {
		r.fail(mongoerr.New(mongoerr.APIVersionError, "API version must be \"1\""))
	}
	if r.boolean("apiStrict") && r.cmd.unstable {
		r.fail(mongoerr.New(mongoerr.APIStrictError, "Provided apiStrict:true, but the command %s is not in API Version 1", r.of))
	}
	if v := r.get("txnNumber"); v.Type != 0 {
		n, ok := v.Int64OK()
		if !ok || n < 0 {
			r.fail(mongoerr.New(mongoerr.TypeMismatch, "txnNumber must be a long that is not negative"))
		}
		r.txnNumber = n
	}
	if v := r.get("autocommit"); v.Type != 0 {
		if on, ok := v.BooleanOK(); !ok || on || r.txnNumber < 0 {
			r.fail(mongoerr.New(mongoerr.InvalidOptions, "autocommit must be false and come with a txnNumber"))
		}
		r.inTxn = true
	}
	if r.startsTxn = r.boolean("startTransaction"); r.startsTxn && !r.inTxn {
		r.fail(mongoerr.New(mongoerr.InvalidOptions, "startTransaction requires autocommit: false"))
	}
	r.checkConcerns()
	lsid := r.get("lsid")
	if lsid.Type == 0 {
		if r.txnNumber >= 0 {
			r.fail(mongoerr.New(mongoerr.InvalidOptions, "a txnNumber requires an lsid"))
		}
		return
	}
	id, _ := value.Lookup(lsid.Value, "id")
	if kind, uuid, _ := id.BinaryOK(); lsid.Type != bson.TypeEmbeddedDocument || kind != bson.TypeBinaryUUID || len(uuid) != 16 {
		r.fail(mongoerr.New(mongoerr.TypeMismatch, "lsid must be {id: <UUID>}"))
		return
	}
	if r.err == nil {
		r.session = r.s.sessions.get(id, lsid.Document())
	}
}

// checkConcerns refuses what MongoDB refuses. What is accepted asks for no more
// than is so anyway.
func (r *request) checkConcerns() {
	if concern := r.document("writeConcern"); r.inTxn && concern != nil && r.of != "commitTransaction" && r.of != "abortTransaction" {
		r.fail(mongoerr.New(mongoerr.InvalidOptions, "writeConcern is not allowed within a multi-statement transaction"))
	}
	concern := r.document("readConcern")
	if len(concern) <= len(emptyDoc) {
		return
	}
	if _, ok := value.Lookup(concern, "atClusterTime"); ok {
		r.fail(mongoerr.NotImplemented("atClusterTime (a second read of a snapshot session)"))
	}
	switch level := r.readConcernLevel(); level {
	case "", "local", "majority", "snapshot":
		if r.inTxn && !r.startsTxn {
			r.fail(mongoerr.New(mongoerr.InvalidOptions,
				"Only the first command in a transaction may specify a readConcern"))
		}
	case "available", "linearizable":
		if r.inTxn {
			r.fail(mongoerr.New(mongoerr.InvalidOptions, "The readConcern level must be either 'local' (default), "+
				"'majority' or 'snapshot' in order to run in a transaction"))
		}
	default:
		r.fail(mongoerr.New(mongoerr.FailedToParse, "Unrecognized read concern level '%s'", level))
	}
}

// readConcernLevel is "" when none is given.
func (r *request) readConcernLevel() string {
	level, _ := value.Lookup(r.document("readConcern"), "level")
	s, ok := level.StringValueOK()
	if !ok && level.Type != 0 {
		r.wrongType("readConcern.level", "string", level)
	}
	return s
}

// list returns the documents of an array field, or of the sequence of its name.
func (r *request) list(name string) []bson.Raw {
	if docs, ok := r.docs[name]; ok {
		return docs
	}
	return r.documents(name, true)
}

// subject is the value of the command's own field.
func (r *request) subject() bson.RawValue { return r.fields.list[0].value }

// namespace returns "database.collection" of the command's own field.
func (r *request) namespace() string {
	name, ok := r.subject().StringValueOK()
	if !ok {
		r.fail(mongoerr.New(mongoerr.InvalidNamespace, "collection name has invalid type %s", r.subject().Type))
		return ""
	}
	ns := r.db + "." + name
	r.fail(storage.CheckNamespace(ns))
	return ns
}

// collection returns what the command reads: the transaction's view, or what is
// committed. It is nil when there is none.
func (r *request) collection(ns string) *storage.Collection {
	if r.txn != nil {
		return r.txn.Collection(ns)
	}
	return r.s.store.Snapshot().Collection(ns)
}

// existing is collection for commands that want one to be there.
func (r *request) existing() (string, *storage.Collection) {
	ns := r.namespace()
	if r.err != nil {
		return ns, nil
	}
	c := r.collection(ns)
	if c == nil {
		r.fail(mongoerr.New(mongoerr.NamespaceNotFound, "ns does not exist: %s", ns))
	}
	return ns, c
}

// run runs the command, in its session if that matters.
func (r *request) run() ([]byte, error) {
	run := r.cmd.run
	if r.session != nil {
		defer r.session.leave()
	}
	if r.session != nil && r.txnNumber >= 0 {
		if err := r.session.acquire(r.ctx); err != nil {
			return nil, err
		}
		defer r.session.release()
		switch {
		case r.inTxn:
			run = runInTxn
		case !r.cmd.retryable:
			return nil, mongoerr.New(50768, "txnNumber may only be provided for multi-document transactions and retryable "+
				"write commands. autocommit:false was not provided, and %s is not a retryable write command.", r.of)
		default:
			if err := r.session.checkNumber(r.txnNumber); err != nil {
				return nil, err
			}
		}
	}
	d, err := run(r)
	if err != nil {
		return nil, err
	}
	return r.s.finish(d, 1), nil
}
