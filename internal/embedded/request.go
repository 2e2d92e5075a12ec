package embedded

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// request is one command, taken apart.
type request struct {
	s    *Server
	c    *conn
	ctx  *opContext
	name string
	cmd  *command
	db   string
	body bson.Raw
	args []arg
	docs map[string][]bson.Raw // document sequences

	session     *session // nil without lsid
	txnNumber   int64    // -1: none
	inTxn       bool     // autocommit: false
	startsTxn   bool
	txn         *storage.Txn // the open transaction the command belongs to
	failedWrite bool         // a statement failed: a transaction ends with that
}

// arg is one field of a command.
type arg struct {
	name  string
	value bson.RawValue
}

// command is how a command is run and which fields it knows.
type command struct {
	run    func(*request) (*docBuilder, error)
	fields string // known fields beside the general ones, separated by spaces; "*" for any
	// refused fields are MongoDB's, but not this server's.
	refused string
	inTxn   bool // allowed in a transaction
	admin   bool // only on the database admin
	// retryable: remembered when it has a txnNumber.
	retryable bool
}

// generalFields may come with every command. Those not looked at ask for what
// is so anyway: every read sees what is durable, every write is.
const generalFields = " $db lsid txnNumber startTransaction autocommit readConcern writeConcern $clusterTime $readPreference maxTimeMS comment apiVersion apiStrict apiDeprecationErrors databaseVersion shardVersion "

func newRequest(c *conn, m *wire.Message, ctx *opContext) (*request, error) {
	r := &request{s: c.s, c: c, ctx: ctx, body: m.Body, db: m.Database, txnNumber: -1}
	it := value.NewIter(m.Body)
	if !it.Next() {
		return nil, mongoerr.New(mongoerr.CommandNotFound, "no such command: ''")
	}
	r.name = string(it.Key)
	r.cmd = commands[r.name]
	if r.cmd == nil {
		if _, known := refusedCommands[r.name]; known {
			return nil, mongoerr.NotImplemented("the command " + r.name)
		}
		return nil, mongoerr.New(mongoerr.CommandNotFound, "no such command: '%s'", r.name)
	}
	r.s.counts[r.name].Add(1)
	r.args = append(make([]arg, 0, 16), arg{r.name, it.Value})
	for it.Next() {
		a := arg{string(it.Key), it.Value}
		if r.get(a.name).Type != 0 {
			return nil, mongoerr.New(40413, "BSON field '%s.%s' is a duplicate field", r.name, a.name)
		}
		if err := r.checkField(a); err != nil {
			return nil, err
		}
		r.args = append(r.args, a)
	}
	for _, seq := range m.Sequences {
		if r.docs == nil {
			r.docs = map[string][]bson.Raw{}
		}
		if r.docs[seq.Name] != nil || r.get(seq.Name).Type != 0 || r.unknown(seq.Name) {
			return nil, mongoerr.New(40415, "BSON field '%s.%s' is a duplicate or unknown field.", r.name, seq.Name)
		}
		r.docs[seq.Name] = seq.Docs
	}
	if err := r.parseGeneral(); err != nil {
		return nil, err
	}
	return r, nil
}

// listed reports whether name is one of a list separated by spaces.
func listed(list, name string) bool {
	for list != "" {
		var head string
		head, list, _ = strings.Cut(list, " ")
		if head == name {
			return true
		}
	}
	return false
}

func (r *request) unknown(name string) bool {
	return r.cmd.fields != "*" && !listed(r.cmd.fields, name) && !listed(generalFields, name)
}

func (r *request) checkField(a arg) error {
	switch {
	case a.name == "collation":
		return checkCollation(a.value)
	case listed(r.cmd.refused, a.name):
		if isOff(a.value) {
			return nil
		}
		return mongoerr.NotImplemented("the field " + a.name + " of " + r.name)
	case r.unknown(a.name):
		return mongoerr.New(40415, "BSON field '%s.%s' is an unknown field.", r.name, a.name)
	}
	return nil
}

// isOff reports whether an option's value asks for nothing.
func isOff(v bson.RawValue) bool {
	return v.Type == bson.TypeNull || v.Type == bson.TypeBoolean && !v.Boolean() || v.Type == bson.TypeEmbeddedDocument && len(v.Value) == 5
}

func checkCollation(v bson.RawValue) error {
	if v.Type == bson.TypeEmbeddedDocument {
		locale, ok := value.Lookup(v.Value, "locale")
		if !ok || locale.Type == bson.TypeString && locale.StringValue() == "simple" {
			return nil
		}
	}
	return mongoerr.NotImplemented("collation")
}

func (r *request) parseGeneral() error {
	if db := r.get("$db"); db.Type == bson.TypeString {
		r.db = db.StringValue()
	}
	if r.db == "" {
		return mongoerr.New(40571, "OP_MSG requests require a $db argument")
	}
	if r.cmd.admin && r.db != "admin" {
		return mongoerr.New(mongoerr.Unauthorized, "%s may only be run against the admin database.", r.name)
	}
	maxTime, err := r.integer("maxTimeMS", 0)
	if err != nil || maxTime < 0 {
		return mongoerr.New(mongoerr.BadValue, "maxTimeMS has invalid value")
	}
	r.ctx.maxTime, r.ctx.start = time.Duration(maxTime)*time.Millisecond, r.s.opt.Now()
	if v := r.get("txnNumber"); v.Type != 0 {
		if v.Type != bson.TypeInt64 || v.Int64() < 0 {
			return mongoerr.New(mongoerr.TypeMismatch, "txnNumber must be a long that is not negative")
		}
		r.txnNumber = v.Int64()
	}
	if v := r.get("autocommit"); v.Type != 0 {
		if v.Type != bson.TypeBoolean || v.Boolean() || r.txnNumber < 0 {
			return mongoerr.New(mongoerr.InvalidOptions, "autocommit must be false and come with a txnNumber")
		}
		r.inTxn = true
	}
	if r.startsTxn, err = r.boolean("startTransaction"); err != nil {
		return err
	}
	if r.startsTxn && !r.inTxn {
		return mongoerr.New(mongoerr.InvalidOptions, "startTransaction requires autocommit: false")
	}
	if err := r.checkConcerns(); err != nil {
		return err
	}
	if v := r.get("lsid"); v.Type != 0 {
		id, ok := value.Lookup(v.Value, "id")
		if v.Type != bson.TypeEmbeddedDocument || !ok || id.Type != bson.TypeBinary {
			return mongoerr.New(mongoerr.TypeMismatch, "lsid must be {id: <UUID>}")
		}
		r.session = r.s.sessions.get(id, v.Document())
	} else if r.txnNumber >= 0 {
		return mongoerr.New(mongoerr.InvalidOptions, "a txnNumber requires an lsid")
	}
	return nil
}

// checkConcerns refuses what MongoDB refuses. What is accepted asks for no more
// than is so anyway.
func (r *request) checkConcerns() error {
	if r.inTxn && r.get("writeConcern").Type != 0 && r.name != "commitTransaction" && r.name != "abortTransaction" {
		return mongoerr.New(mongoerr.InvalidOptions, "writeConcern is not allowed within a multi-statement transaction")
	}
	concern, err := r.document("readConcern")
	if err != nil || len(concern) <= 5 {
		return err
	}
	if _, ok := value.Lookup(concern, "atClusterTime"); ok {
		return mongoerr.NotImplemented("atClusterTime")
	}
	switch level := r.readConcernLevel(); {
	case r.inTxn && !r.startsTxn:
		return mongoerr.New(mongoerr.InvalidOptions, "Only the first command in a transaction may specify a readConcern")
	case r.inTxn && !listed(" local majority snapshot", level):
		return mongoerr.New(mongoerr.InvalidOptions, "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a transaction")
	case !listed(" local majority snapshot available linearizable", level):
		return mongoerr.New(mongoerr.FailedToParse, "Unrecognized read concern level '%s'", level)
	}
	return nil
}

// readConcernLevel is "" when none is given.
func (r *request) readConcernLevel() string {
	concern, _ := r.document("readConcern")
	level, _ := value.Lookup(concern, "level")
	s, _ := level.StringValueOK()
	return s
}

// get returns a field of the command, with type 0 when it is not there.
func (r *request) get(name string) bson.RawValue {
	for i := range r.args {
		if r.args[i].name == name {
			return r.args[i].value
		}
	}
	return bson.RawValue{}
}

func (r *request) wrongType(name, want string, v bson.RawValue) error {
	return mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type '%s'", r.name, name, v.Type, want)
}

// document returns a field that is a document, nil when it is not there.
func (r *request) document(name string) (bson.Raw, error) {
	v := r.get(name)
	switch v.Type {
	case 0, bson.TypeNull:
		return nil, nil
	case bson.TypeEmbeddedDocument:
		return bson.Raw(v.Value), nil
	}
	return nil, r.wrongType(name, "object", v)
}

func (r *request) integer(name string, missing int64) (int64, error) {
	return r.integerOf(name, r.get(name), missing)
}

func (r *request) integerOf(name string, v bson.RawValue, missing int64) (int64, error) {
	if v.Type == 0 || v.Type == bson.TypeNull {
		return missing, nil
	}
	n, ok := value.AsInteger(v)
	if !ok {
		if value.ClassOf(v.Type) != value.ClassNumber {
			return 0, r.wrongType(name, "long", v)
		}
		n = int64(value.AsDouble(v))
	}
	return n, nil
}

// count is an integer that must not be negative.
func (r *request) count(name string) (int, error) {
	n, err := r.integer(name, 0)
	if err == nil && n < 0 {
		err = mongoerr.New(51024, "BSON field '%s' value must be >= 0, actual value '%d'", name, n)
	}
	return int(n), err
}

func (r *request) boolean(name string) (bool, error) {
	v := r.get(name)
	switch {
	case v.Type == 0 || v.Type == bson.TypeNull:
		return false, nil
	case v.Type == bson.TypeBoolean:
		return v.Boolean(), nil
	case value.ClassOf(v.Type) == value.ClassNumber:
		return value.AsDouble(v) != 0, nil
	}
	return false, r.wrongType(name, "bool", v)
}

// list returns the documents of an array field, or of the sequence of its name.
func (r *request) list(name string) ([]bson.Raw, error) {
	if docs, ok := r.docs[name]; ok {
		return docs, nil
	}
	v := r.get(name)
	if v.Type == 0 {
		return nil, mongoerr.New(40414, "BSON field '%s.%s' is missing but a required field", r.name, name)
	}
	return r.listOf(name, v)
}

func (r *request) listOf(name string, v bson.RawValue) (docs []bson.Raw, err error) {
	if v.Type != bson.TypeArray {
		return nil, r.wrongType(name, "array", v)
	}
	for it := value.NewIter(v.Value); it.Next(); {
		if it.Value.Type != bson.TypeEmbeddedDocument {
			return nil, r.wrongType(name+"."+string(it.Key), "object", it.Value)
		}
		docs = append(docs, bson.Raw(it.Value.Value))
	}
	return docs, nil
}

// namespace returns "database.collection" of the command's own field.
func (r *request) namespace() (string, error) {
	v := r.args[0].value
	if v.Type != bson.TypeString {
		return "", mongoerr.New(mongoerr.InvalidNamespace, "collection name has invalid type %s", v.Type)
	}
	ns := r.db + "." + v.StringValue()
	return ns, storage.CheckNamespace(ns)
}

// collection returns what the command reads: the transaction's view, or what is
// committed. It is nil when there is none.
func (r *request) collection(ns string) *storage.Collection {
	if r.txn != nil {
		return r.txn.Collection(ns)
	}
	return r.s.store.Snapshot().Collection(ns)
}

// run runs the command, in its session if that matters.
func (r *request) run() ([]byte, error) {
	if r.session != nil && r.txnNumber >= 0 {
		if err := r.session.acquire(r.ctx); err != nil {
			return nil, err
		}
		defer r.session.release()
		if r.inTxn {
			return r.runInTxn()
		}
		if !r.cmd.retryable {
			return nil, mongoerr.New(50768, "txnNumber may only be provided for multi-document transactions and retryable write commands. autocommit:false was not provided, and %s is not a retryable write command.", r.name)
		}
		if err := r.session.checkNumber(r.txnNumber); err != nil {
			return nil, err
		}
	}
	d, err := r.cmd.run(r)
	if err != nil {
		return nil, err
	}
	return r.s.finish(d, true), nil
}
