package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
)

// recordedAs is what the audit has to know of a command that changes something.
type recordedAs struct {
	kind string
	ids  func(cmd *cobra.Command, args []string) []string // of the things that the arguments name; nil = none
	// late: the entry is written when the command has ended, because before it there may be no audit.
	late bool
	// reads says that these arguments change nothing.
	reads func(args []string) bool
}

// changes are the commands that change something, by their paths. Every other command reads, or runs a
// process; a test fails at a command that is in neither list.
var changes = map[string]recordedAs{
	"send":              {kind: audit.Task},
	"task cancel":       {kind: audit.Task, ids: tasksNamed},
	"task retry":        {kind: audit.Task, ids: tasksNamed},
	"task resolve":      {kind: audit.Task, ids: tasksNamed},
	"task release":      {kind: audit.Task, ids: tasksNamed},
	"task update":       {kind: audit.Task, ids: tasksNamed},
	"task redeliver":    {kind: audit.Task, ids: tasksNamed},
	"type apply":        {kind: audit.Type},
	"type delete":       {kind: audit.Type, ids: asGiven},
	"periodic apply":    {kind: audit.Rule},
	"periodic enable":   {kind: audit.Rule, ids: asGiven},
	"periodic disable":  {kind: audit.Rule, ids: asGiven},
	"periodic delete":   {kind: audit.Rule, ids: asGiven},
	"periodic trigger":  {kind: audit.Rule, ids: asGiven},
	"periodic backfill": {kind: audit.Rule, ids: asGiven},
	"periodic cancel":   {kind: audit.Run, ids: asGiven},
	"plan publish":      {kind: audit.Plan},
	"plan cancel":       {kind: audit.Plan, ids: firstWithTenant},
	"plan reset":        {kind: audit.Plan, ids: firstWithTenant},
	"flow start":        {kind: audit.Flow},
	"flow cancel":       {kind: audit.Flow, ids: firstWithTenant},
	"flow retry":        {kind: audit.Flow, ids: firstWithTenant},
	"flow resolve":      {kind: audit.Flow, ids: firstWithTenant},
	"flow append":       {kind: audit.Stream, ids: streamNamed},
	"flow open":         {kind: audit.Stream, ids: streamNamed},
	"type pause":        {kind: audit.Type, ids: typesOrAll},
	"type resume":       {kind: audit.Type, ids: typesOrAll},
	"pause":             {kind: audit.Type, ids: typesOrAll},
	"resume":            {kind: audit.Type, ids: typesOrAll},
	"archive run":       {kind: audit.Task},
	"archive retention": {reads: func(args []string) bool { return len(args) == 0 }},
	"audit retention":   {reads: func(args []string) bool { return len(args) == 0 }},
	"token create":      {kind: audit.Token},
	"token revoke":      {kind: audit.Token, ids: tokenNamed},
	"worker drain":      {kind: audit.Worker, ids: asGiven},
	"worker resume":     {kind: audit.Worker, ids: asGiven},
	"bulk stop":         {kind: audit.Bulk, ids: firstWithTenant},
	"db migrate":        {late: true},
	"db shard":          {},
	"db restored":       {},
}

func asGiven(_ *cobra.Command, args []string) []string { return args }

func tasksNamed(_ *cobra.Command, args []string) (ids []string) {
	for _, arg := range args {
		ids = append(ids, fullID(arg))
	}
	return ids
}

func firstWithTenant(_ *cobra.Command, args []string) []string {
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return []string{model.NoTenant + "/" + args[0]}
	}
	return args[:min(1, len(args))]
}

func streamNamed(_ *cobra.Command, args []string) []string { return []string{strings.Join(args, "/")} }

func typesOrAll(_ *cobra.Command, args []string) []string {
	if len(args) == 0 {
		return []string{""}
	}
	return args
}

func tokenNamed(_ *cobra.Command, args []string) (ids []string) {
	for _, arg := range args {
		if id, err := access.ParseID("id", arg); err == nil { // never the whole token
			ids = append(ids, id)
		}
	}
	return ids
}

const (
	// maxThings is how many things of one command have entries that say what changed. Further things that
	// the arguments name have entries without that; those of a file or a filter are only counted.
	maxThings = 100
	// auditTimeout is how long a command waits at its end for the audit.
	auditTimeout = 10 * time.Second
)

// auditing records one run of a command.
type auditing struct {
	recordedAs
	operation, request string
	ids                []string
	tenant             string // of the rules that arguments name

	c       *connection // nil = there is none yet, and nothing was changed
	log     *audit.Log
	entries []*store.AuditEntry // stored before the change
	before  []*audit.Snapshot   // of the things of the entries
	done    []audit.Thing       // what the command says that it has changed, beside those
	was     []*audit.Snapshot   // and how that was before
	count   int64
	reasons map[string]string // why things were refused, by their ids
}

// commandPath is a command without the name of the program.
func commandPath(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// audited prepares the audit of a command that changes something.
func (a *app) audited(cmd *cobra.Command, args []string) {
	ch, changes := changes[commandPath(cmd)]
	dry, err := cmd.Flags().GetBool("dry-run")
	if !changes || err == nil && dry || ch.reads != nil && ch.reads(args) {
		return
	}
	r := &auditing{recordedAs: ch, operation: commandPath(cmd)}
	if ch.ids != nil {
		r.ids = ch.ids(cmd, args)
	}
	r.tenant, _ = cmd.Flags().GetString("tenant")
	said := map[string]any{}
	if len(args) > 0 {
		said["arguments"] = args
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			said["--"+f.Name] = shownFlag(f)
		}
	})
	r.request = audit.Request(said)
	a.auditing = r
}

// openFlags are text flags whose values are in the audit. Those of others may be secrets.
var openFlags = []string{
	"tenant", "type", "key", "status", "category", "creator", "worker", "retry-strategy", "created-after", "created-before", "remark", "note", "from-step", "history", "role", "name",
	"from", "to", "request", "at", "in", "file", "expires-at", "existing", "id", "on-failure", "limit-key",
}

func shownFlag(f *pflag.Flag) string {
	if strings.HasPrefix(f.Value.Type(), "string") && !slices.Contains(openFlags, f.Name) {
		return "(given)"
	}
	return f.Value.String()
}

// begin stores the entries of a command before it changes anything.
func (a *app) begin(ctx context.Context, c *connection) error {
	r := a.auditing
	if r == nil || r.c != nil {
		return nil
	}
	r.c, r.log = c, audit.New(audit.Config{Store: c.store, Log: a.logger()})
	if r.late {
		return nil
	}
	things := []audit.Thing{{Kind: r.kind}}
	if len(r.ids) > 0 {
		things = nil
		for _, id := range r.ids {
			things = append(things, a.named(ctx, c, id))
		}
	}
	entries, before := make([]*store.AuditEntry, len(things)), make([]*audit.Snapshot, len(things))
	for i, t := range things {
		entries[i] = r.entry(t)
		if i >= maxThings || t.ID == "" && t.Kind != audit.Pauses {
			continue
		}
		var err error
		if before[i], err = audit.Take(ctx, c.store, t); err != nil {
			return fmt.Errorf("recording the change in the audit: %w", err)
		}
		entries[i].Before, _ = audit.Changed(before[i], nil)
	}
	errs := make([]error, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { errs[i] = r.log.Begin(ctx, e) })
	}
	all.Wait()
	var failed error // one will do: they were written together
	for i, err := range errs {
		if err != nil {
			failed = fmt.Errorf("recording the change in the audit: %w", err)
			continue
		}
		r.entries, r.before = append(r.entries, entries[i]), append(r.before, before[i])
	}
	return failed
}

// named is what an argument names. A pause of all types is about none of them. Rules and runs have ids that do
// not tell their tenant.
func (a *app) named(ctx context.Context, c *connection, arg string) audit.Thing {
	r := a.auditing
	t := audit.Thing{Kind: r.kind, ID: arg}
	switch r.kind {
	case audit.Type:
		if arg == "" {
			t.Kind = audit.Pauses
		}
	case audit.Rule:
		rule, err := (&rulesCommand{app: a, tenant: r.tenant}).find(ctx, c, arg)
		switch {
		case err == nil:
			t.ID = input.RuleName(rule.Tenant, rule.Name)
		case r.tenant != "" || !strings.Contains(arg, "/"):
			t.ID = input.RuleName(r.tenant, strings.TrimPrefix(arg, r.tenant+"/"))
		}
	case audit.Run:
		t.ID = input.RuleName("", arg)
		if rule, err := c.store.Rules.Get(ctx, tickplan.RuleOf(arg)); err == nil {
			t.ID = input.RuleName(rule.Tenant, arg)
		}
	}
	return t
}

func (r *auditing) entry(t audit.Thing) *store.AuditEntry {
	host, _ := os.Hostname()
	return &store.AuditEntry{
		Who: "os/" + whoami(), From: fmt.Sprintf("%s, process %d", cmp.Or(host, "unknown"), os.Getpid()), Door: "cli",
		Operation: r.operation, Kind: t.Kind, Resource: t.ID, Tenant: t.Tenant(), Request: r.request,
	}
}

// touches notes a thing that the command is about to change, and that its arguments do not name. It has an
// entry of its own when the command has ended.
func (a *app) touches(ctx context.Context, t audit.Thing) {
	if r := a.auditing; r != nil && r.c != nil && len(r.done) < maxThings {
		before, err := audit.Take(ctx, r.c.store, t)
		if err == nil { // else the change fails as well
			r.done, r.was = append(r.done, t), append(r.was, before)
		}
	}
}

// made is touches for a thing that the command has just created.
func (a *app) made(t audit.Thing) {
	if r := a.auditing; r != nil && len(r.done) < maxThings {
		r.done, r.was = append(r.done, t), append(r.was, nil)
	}
}

// counts notes how many things the command has changed.
func (a *app) counts(n int64) {
	if a.auditing != nil {
		a.auditing.count = n
	}
}

// refuses notes why the command does not change a thing; "" = the only one.
func (a *app) refuses(id, reason string) {
	if r := a.auditing; r != nil {
		if r.reasons == nil {
			r.reasons = map[string]string{"": reason} // the first of them
		}
		r.reasons[id] = reason
	}
}

// ended writes what became of the command, code and reason, to the audit, once.
func (a *app) ended(ctx context.Context, code int, reason string) {
	r := a.auditing
	a.auditing = nil
	if r == nil || r.c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	outcome := store.AuditFailed
	switch code {
	case ExitOK:
		outcome = store.AuditOK
	case ExitUsage, ExitNotFound, ExitRefused:
		outcome = store.AuditRefused
	}
	conclude := func(e *store.AuditEntry, before *audit.Snapshot, looks bool) error {
		var err error
		if e.Outcome, e.Reason = outcome, cmp.Or(reason, r.reasons[e.Resource], r.reasons[""]); code != ExitOK {
			e.Status = code
		}
		if t := (audit.Thing{Kind: e.Kind, ID: e.Resource}); looks && (t.ID != "" || t.Kind == audit.Pauses) {
			var after *audit.Snapshot
			after, err = audit.Take(ctx, r.c.store, t)
			e.Before, e.After = audit.Changed(before, after)
		}
		changed := e.Before != "" || e.After != ""
		others := e.Resource != "" && len(r.reasons) > 1 && r.reasons[e.Resource] == ""
		if outcome == store.AuditRefused && (changed || others) {
			e.Outcome, e.Reason, e.Status = store.AuditOK, "", 0 // the command was refused about others
		}
		return err
	}
	var errs []error
	r.fold()
	for i, e := range r.entries {
		errs = append(errs, conclude(e, r.before[i], i < maxThings))
		r.log.End(ctx, e)
	}
	for i, t := range r.done {
		e := r.entry(t)
		errs = append(errs, conclude(e, r.was[i], true))
		if e.Before != "" || e.After != "" {
			errs = append(errs, r.log.Begin(ctx, e))
		}
	}
	if r.late && code != ExitUnreachable {
		e := r.entry(audit.Thing{})
		e.Outcome, e.Reason = outcome, reason
		if err := r.log.Begin(ctx, e); code == ExitOK {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, r.log.Wait(ctx))...); err != nil {
		a.say("mscheduler: the audit does not say how the command ended: %s", errorText(err))
	}
}

// fold makes the only entry that of the only thing, or counts the things.
func (r *auditing) fold() {
	if len(r.entries) != 1 || r.entries[0].Resource != "" {
		return
	}
	e := r.entries[0]
	if len(r.done) != 1 {
		e.Count = max(r.count, int64(len(r.done)))
		return
	}
	t := r.done[0]
	e.Kind, e.Resource, e.Tenant, r.before[0] = t.Kind, t.ID, t.Tenant(), r.was[0]
	r.done, r.was = nil, nil
}
