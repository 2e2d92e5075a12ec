package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/producer"
)

const (
	defaultDatabase = "mscheduler"
	// selectionTimeout is how long a command waits for a server that takes writes.
	selectionTimeout = 5 * time.Second
	// maxIdleTime is how long a connection may be idle, unless the URI says it.
	maxIdleTime = 45 * time.Second
)

// target is the database a command works on.
type target struct {
	uri      string
	database string
	prefix   string
	hosts    string // for messages: the addresses, never the credentials
	suspects string // for the message that the database does not answer; "" = nothing in particular
}

func (t target) String() string { return t.database + " on " + t.hosts }

// target says which database is meant: the flag, the variable, or the dev server whose
// address file lies in the current directory. Nothing is ever guessed beyond that.
func (a *app) target(ctx context.Context) (target, error) {
	if a.flags.uri != "" {
		return a.targetOf(a.flags.uri, a.from("uri"))
	}
	f, err := readDevFile(a.Dir)
	if err != nil {
		return target{}, err
	}
	both := "name one with --uri or MSCHEDULER_MONGODB_URI, or start `mscheduler dev` in this directory"
	switch {
	case f == nil:
		return target{}, usage("no database: %s", both)
	case !f.alive(ctx):
		return target{}, usage("no database: the dev server of %s (pid %d) is no longer running; %s", devFileName, f.PID, both)
	}
	t, err := a.targetOf(f.URI, devFileName)
	if err == nil && a.flags.database == "" {
		t.database = f.Database
	}
	if err == nil && !a.saidDev {
		a.saidDev = true
		a.say("using the dev server of this directory (pid %d, %s)", f.PID, t.hosts)
	}
	return t, err
}

func (a *app) targetOf(uri, from string) (target, error) {
	cs, err := connstring.ParseAndValidate(uri)
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return target{}, coded(ExitUnreachable, "the database does not answer: %w", lookup)
	case err != nil:
		return target{}, usage("%s is not a MongoDB URI: %s", from, withoutSecrets(err.Error(), uri))
	case strings.Contains(cs.Database, "@"): // the end of a password, which the driver took for a database
		return target{}, usage("the database in %s is not valid; write @ / : in a password as %%40 %%2F %%3A", from)
	}
	t := target{uri: uri, hosts: strings.Join(cs.Hosts, ","), suspects: suspectsOf(cs)}
	t.prefix = a.flags.prefix
	t.database = cmp.Or(a.flags.database, cs.Database, defaultDatabase)
	if a.flags.database == "" && input.SystemDatabase(t.database) {
		return target{}, usage("the database in %s is %s, where MongoDB keeps its own data: pass --database, or write /DATABASE?authSource=%[2]s if the user is stored there", from, t.database)
	}
	return t, a.validDatabase(t.database)
}

func (a *app) validDatabase(name string) error {
	if len(name) > 63 || strings.ContainsAny(name, "/\\. \"$*<>:|?\x00") {
		return usage("%s is %q; want at most 63 bytes without / \\ . space \" $ * < > : | ?", a.from("database"), name)
	}
	if input.SystemDatabase(name) {
		return usage("%s is %s, where MongoDB keeps its own data", a.from("database"), name)
	}
	return nil
}

// connection is an open connection to a target, with all that a command may work through.
type connection struct {
	target
	client   *mongo.Client
	db       *mongo.Database
	store    *store.Store
	producer *producer.Producer
	admin    *admin.Admin
	rules    *periodic.Periodic
	flows    *flow.Flows
	plans    *plan.Plans
	at       time.Time // when the command began, by the database
}

// connect opens the database that is meant and makes sure that it answers. A command that changes something
// is in the audit then. The connection is closed when the command ends.
func (a *app) connect(ctx context.Context) (*connection, error) {
	c, err := a.reach(ctx)
	if err == nil {
		err = a.begin(ctx, c)
	}
	return c, err
}

// reach is connect before anything is written.
func (a *app) reach(ctx context.Context) (*connection, error) {
	t, err := a.target(ctx)
	if err != nil {
		return nil, err
	}
	return a.open(ctx, t)
}

func (a *app) open(ctx context.Context, t target) (*connection, error) {
	c, err := a.dial(t)
	if err == nil {
		err = c.answers(ctx)
	}
	return c, err
}

// answers makes sure that the database answers.
func (c *connection) answers(ctx context.Context) error {
	if _, err := c.store.Topology(ctx); err != nil {
		var fatal *store.FatalError
		if errors.As(err, &fatal) {
			return err
		}
		return unreachable(c.target, err)
	}
	var err error
	c.at, err = c.store.ServerTime(ctx)
	return err
}

// dial makes a connection, which does not ask the server for anything yet.
func (a *app) dial(t target) (*connection, error) {
	o := options.Client().ApplyURI(t.uri).SetServerSelectionTimeout(selectionTimeout).SetMonitor(a.monitor)
	if o.AppName == nil {
		o.SetAppName("mscheduler")
	}
	if o.MaxConnIdleTime == nil { // many proxies break a connection on which nothing moves for a minute
		o.SetMaxConnIdleTime(maxIdleTime)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, usage("--uri: %s", withoutSecrets(err.Error(), t.uri))
	}
	a.onClose(func(ctx context.Context) { _ = client.Disconnect(ctx) })
	c := &connection{target: t, client: client, db: client.Database(t.database)}
	log, key := a.logger(), a.Env.SecretKey
	if c.store, err = store.Open(store.Config{Database: c.db, Prefix: t.prefix, Logger: log}); err != nil {
		return nil, err
	}
	if c.producer, err = producer.New(producer.Config{Database: c.db, Prefix: t.prefix, SecretKey: key, TracerProvider: a.traces, Logger: log}); err != nil {
		return nil, err
	}
	a.onClose(func(ctx context.Context) { _ = c.producer.Close(ctx) })
	c.admin = admin.New(c.producer)
	if c.rules, err = periodic.New(periodic.Config{Database: c.db, Prefix: t.prefix, SecretKey: key, TracerProvider: a.traces, Logger: log}); err != nil {
		return nil, err
	}
	ofFlows := log
	if a.origins["log-level"] == "" { // the answer of a command says what an engine would log
		ofFlows = log.Level(zerolog.ErrorLevel)
	}
	if c.flows, err = flow.New(flow.Config{Database: c.db, Prefix: t.prefix, SecretKey: key, TracerProvider: a.traces, Logger: ofFlows}); err != nil {
		return nil, err
	}
	c.plans, err = plan.New(plan.Config{Database: c.db, Prefix: t.prefix, SecretKey: key, TracerProvider: a.traces, Logger: log})
	return c, err
}

func unreachable(t target, err error) error {
	return &codedError{ExitUnreachable, fmt.Errorf("the database does not answer: %s%s: %w", t.hosts, t.suspects, err)}
}

// suspectsOf names what keeps a client from a database that runs, if it is wrong: options of the URI, or the access list
// of a hosted cluster.
func suspectsOf(cs *connstring.ConnString) string {
	if cs.Scheme == connstring.SchemeMongoDBSRV { // most options come from the name server
		return " (check also that the cluster's access list has the address of this machine)"
	}
	var found []string
	if cs.SSL {
		found = append(found, "tls=true")
	}
	if cs.ReplicaSet != "" {
		found = append(found, "replicaSet="+cs.ReplicaSet)
	}
	if len(found) == 0 {
		return ""
	}
	return " (check also " + human.List(found) + " in the URI)"
}

// connectReady is connect for commands that read or change what is there: a database
// that mscheduler never set up is not an empty one.
func (a *app) connectReady(ctx context.Context) (*connection, error) {
	c, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	st, err := c.store.Schema(ctx)
	switch {
	case err != nil:
		return nil, err
	case st.Foreign != "":
		return nil, c.foreign(st)
	case st.Version == 0:
		return nil, coded(ExitRefused, "database %s is not set up: it has received no task and no worker has used it. If it is the right one, run: mscheduler db migrate", c.target)
	}
	if err := c.store.Ready(ctx); err != nil {
		return nil, err
	}
	return c, a.begin(ctx, c)
}

// foreign is the error for a database that has a collection of another application.
func (c *connection) foreign(st store.SchemaStatus) error {
	return coded(ExitRefused, "database %s has a collection %s that mscheduler did not create; choose another database or --prefix", c.target, st.Foreign)
}

// onDatabase is the action of a command on a database that is set up.
func (a *app) onDatabase(do func(ctx context.Context, c *connection, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.connectReady(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args)
	}
}

// firstSentence cuts the driver's description of the whole topology from its error and
// keeps the reason for which no server could be had.
func firstSentence(text string) string {
	head, rest, found := strings.Cut(text, ": server selection error")
	if !found {
		return text
	}
	if _, last, ok := strings.Cut(rest, "Last error: "); ok {
		reason, _, _ := strings.Cut(last, " }")
		return head + ": " + reason
	}
	return head + ": no server was found within " + selectionTimeout.String()
}
