package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/consumer"
)

const checkConfigHelp = `--check-config checks the flags, variables, configuration file, certificates and addresses, and that the
database answers and its schema fits. It prints the settings and where each comes from, with secrets
masked. It writes nothing and listens nowhere, so it does not notice a port that is taken.`

// checkFlag registers --check-config.
func checkFlag(f *pflag.FlagSet, check *bool) {
	f.BoolVar(check, "check-config", false, "check the configuration and the database, print the settings, and exit")
	_ = f.SetAnnotation("check-config", notInFiles, []string{""})
}

// shownSetting is a setting that is in force.
type shownSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // default, --FLAG, MSCHEDULER_VARIABLE or file:line:column
}

// checkConfig prints the settings of a command, and then all that is wrong: what is known of that already,
// what its own check says, which asks the database if it answers, and what is wrong with the database.
func (a *app) checkConfig(cmd *cobra.Command, known error, own func(ctx context.Context, c *connection, answers bool) error) error {
	ctx := cmd.Context()
	t, err := a.target(ctx)
	if err := a.printSettings(cmd, t); err != nil {
		return err
	}
	known = errors.Join(known, a.checkTraces(ctx))
	if err != nil {
		return errors.Join(known, err)
	}
	conn, err := a.dial(t)
	if err != nil {
		return errors.Join(known, err)
	}
	about, err := a.checkDatabase(ctx, conn)
	if err = errors.Join(known, own(ctx, conn, err == nil), err); err != nil {
		return err
	}
	a.say("%s", about)
	a.say("the configuration is right")
	return nil
}

// checkDatabase says what a database is like for a process that starts.
func (a *app) checkDatabase(ctx context.Context, c *connection) (about string, err error) {
	if err := c.answers(ctx); err != nil {
		return "", err
	}
	about = "the database " + c.String() + " answers"
	switch st, err := c.store.Schema(ctx); {
	case err != nil:
		return "", err
	case st.Foreign != "":
		return "", c.foreign(st)
	case st.Version == 0:
		return about + "; it is not set up yet: the first process that starts does that", nil
	default:
		return about + "; its schema is version " + strconv.Itoa(st.Version), c.store.Ready(ctx) // which reads, where there is a schema
	}
}

// checkAddress says whether a flag's value is an address that a process can listen on, and which; none where
// it is "".
func checkAddress(flag, value string) (*net.TCPAddr, error) {
	if value == "" {
		return nil, nil
	}
	at, err := net.ResolveTCPAddr("tcp", value)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	if at.IP == nil { // as a listener would tell it
		at.IP = net.IPv6unspecified
	}
	return at, nil
}

// check is what a worker would find wrong at its start.
func (w *workFlags) check(c *connection, cfg consumer.Config) error {
	cfg.Database, cfg.Prefix = c.db, c.prefix
	_, err := consumer.New(cfg)
	_, urlErr := w.completionBase()
	at, addrErr := checkAddress("--completion-addr", w.completionAddr)
	if at != nil {
		addrErr = w.reachable(at)
	}
	return errors.Join(err, urlErr, addrErr)
}

// check is what [app.observed] would find wrong.
func (o *observeFlags) check() error {
	_, err := checkAddress("--metrics-bind", o.metricsBind)
	at, profileErr := checkAddress("--profile-bind", o.profileBind)
	if at != nil {
		profileErr = o.local(at)
	}
	return errors.Join(err, profileErr)
}

// checkServe is what serve would find wrong at its start.
func (a *app) checkServe(ctx context.Context, c *connection, f *serveFlags, answers bool) error {
	at, err := checkAddress("--bind", f.bind)
	if err != nil || at == nil { // that there is none is known already
		return err
	}
	err = f.completionsAt(at)
	if answers {
		_, openErr := a.openTo(ctx, c, f, at)
		err = errors.Join(err, openErr)
	}
	return err
}

// printSettings prints the settings; used is the database that they lead to.
func (a *app) printSettings(cmd *cobra.Command, used target) error {
	settings := []shownSetting{}
	add := func(name, value string) {
		from := a.origins[name]
		if from == "" {
			from = "default"
		}
		settings = append(settings, shownSetting{name, value, from})
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "uri" && a.flags.uri == "" && used.uri != "":
			settings = append(settings, shownSetting{f.Name, withoutCredentials(used.uri), devFileName})
		case f.Name == "uri":
			add(f.Name, withoutCredentials(f.Value.String()))
		case f.Name == "database" && a.flags.database == "" && used.database != "" && used.database != defaultDatabase:
			settings = append(settings, shownSetting{f.Name, used.database, cmp.Or(a.origins["uri"], devFileName)})
		case f.Name == "database":
			add(f.Name, cmp.Or(a.flags.database, defaultDatabase))
		case f.Name == "config" || inFiles(f):
			add(f.Name, withoutUser(f.Value.String()))
		}
	})
	key := ""
	if a.Env.SecretKey != "" {
		key = masked
	}
	add(secretKey, key)
	t := newTable("SETTING", "VALUE", "FROM")
	for _, s := range settings {
		t.add(s.Name, s.Value, s.From)
	}
	return a.resultTable(map[string]any{"settings": settings}, t, "")
}
