package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

const tokenHelp = `Manage access tokens. The REST API checks them; commands with a database connection need none.

A token has a role and may be limited to tenants:
  viewer    reads
  operator  also changes tasks, rules, plans and flows, drains workers, and examines the deployment
  admin     also changes types, pauses and tokens
  worker    only fetches tasks and reports on them

The database has no token's secret, only a hash of it.`

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Manage access tokens", Long: tokenHelp, Args: noArgs, RunE: group}
	cmd.AddCommand(a.tokenCreate(), a.tokenList(), a.tokenRevoke())
	return cmd
}

func (a *app) tokenCreate() *cobra.Command {
	var w access.Wanted
	var in time.Duration
	var at string
	cmd := &cobra.Command{
		Use: "create NAME --role ROLE", Short: "Create a token and print it once", Args: one("the name of the token"),
		Long: "Create a token and print it, alone on stdout. It cannot be shown again: if it is lost, revoke it and\ncreate another one. Without --expires-in or --expires-at it is valid until it is revoked.",
		Example: "  mscheduler token create grafana --role viewer --expires-in 90d\n" +
			"  mscheduler token create shop --role operator --tenant shop > token.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Name, w.CreatedBy = args[0], whoami()
			given := cmd.Flags().Changed
			limited, err := given("expires-in"), w.Check()
			if given("tenant") && len(w.Tenants) == 0 { // it would see all of them
				err = errors.Join(err, usage("--tenant names no tenant"))
			}
			switch {
			case limited && given("expires-at"):
				err = errors.Join(err, usage("--expires-in and --expires-at are both given"))
			case limited && in <= 0:
				err = errors.Join(err, usage("--expires-in is %s; must be positive", span(in)))
			}
			var expiresAt time.Time
			if given("expires-at") { // an empty one is no time, and would be for ever
				var wrong error
				expiresAt, wrong = parseTime("expires-at", at, time.Time{})
				err = errors.Join(err, wrong)
			}
			if err != nil {
				return err
			}
			return a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				if w.ExpiresAt = expiresAt; limited {
					w.ExpiresAt = c.at.Add(in)
				}
				text, t, err := access.Create(ctx, c.store, w)
				if err != nil {
					return err
				}
				a.made(audit.Thing{Kind: audit.Token, ID: t.ID})
				v := view.TokenOf(t, c.at)
				a.say("created the token %s; it is shown only this once", t.ID)
				return a.result(struct {
					Text string `json:"token"`
					view.Token
				}{text, v}, text+"\n")
			})(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Role, "role", "", strings.Join(names(access.Roles), ", ")+"; required")
	f.StringSliceVar(&w.Tenants, "tenant", nil, "limit the token to things of these tenants; - for those without a tenant; defaults to all")
	spanVar(f, &in, "expires-in", 0, "time until the token expires, such as 90d")
	f.StringVar(&at, "expires-at", "", "time at which the token expires, such as 2026-12-31T00:00:00Z")
	_ = cmd.RegisterFlagCompletionFunc("role", fixed(names(access.Roles)...))
	return cmd
}

// whoami names the person and the machine of this command, as far as they are known.
func whoami() string {
	who := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		who = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		who += "@" + host
	}
	return safetext.Clip(strings.ToValidUTF8(who, "?"), 150)
}

func (a *app) tokenList() *cobra.Command {
	var page pageFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List the tokens", Args: noArgs,
		Long: "List the tokens, the oldest first, without their secrets. Tokens that were revoked or have expired\nstay in the list for 90 days.\n\nOne page is printed. If more tokens follow, the command prints the value of --after for the next page;\nwith -o json it is the field \"next\".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := tokenPlace(page.after)
			if err != nil {
				return err
			}
			return a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				tokens, unread, next, err := c.store.Tokens.List(ctx, from, page.limit)
				if err != nil {
					return err
				}
				err = a.printTokens(tokens, next, c.at)
				for _, u := range unread { // what was listed is not all
					err = errors.Join(err, fmt.Errorf("the token %s cannot be read: %w", u.ID, u.Err))
				}
				return err
			})(cmd, nil)
		},
	}
	page.register(cmd, "tokens")
	return cmd
}

// tokenPlace reads the place that a page ended at: when its last token was created, and that token's id. The
// time is there because the token may have been deleted since; a token whose document has none has no time.
func tokenPlace(after string) (p store.TokenPlace, err error) {
	switch id, timeless := strings.CutPrefix(after, " "); {
	case after == "":
		return p, nil
	case timeless:
		p.ID = id
	default:
		p.At, p.ID, err = placeOf(after)
	}
	if err != nil || p.ID == "" || !safetext.IsText(p.ID) {
		return p, wrongAfter(after)
	}
	return p, nil
}

func (a *app) printTokens(tokens []*store.Token, next store.TokenPlace, now time.Time) error {
	views := []view.Token{}
	t := newTable("TOKEN", "NAME", "ROLE", "TENANTS", "STATE", "CREATED", "BY", "EXPIRES", "LAST USED")
	for _, tok := range tokens {
		v := view.TokenOf(tok, now)
		views = append(views, v)
		tenants := "*" // which is no tenant's name
		if tok.Tenants != nil {
			tenants = cmp.Or(strings.Join(tok.Tenants, ","), "none")
		}
		used := "never"
		if !tok.LastUsedAt.IsZero() {
			used = human.Relative(tok.LastUsedAt, now)
		}
		t.add(v.ID, v.Name, v.Role, human.OneLine(tenants, 40), v.State, human.When(tok.CreatedAt, now), human.OneLine(v.CreatedBy, 40),
			human.When(tok.ExpiresAt, now), used)
	}
	place := ""
	if next.ID != "" {
		place = view.Time(next.At) + " " + next.ID
	}
	return a.printPage("tokens", views, place, t, "no tokens; to create one: mscheduler token create NAME --role ROLE")
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token", Args: one("the id of a token"),
		Long: "Revoke a token for good. Every process refuses it within five seconds. A token that is revoked\nalready stays as it is. In the place of the id you can give the whole token.",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := access.ParseID("id", args[0])
			if err != nil {
				return err
			}
			return a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				t, err := access.Revoke(ctx, c.store, id)
				if err != nil {
					return err
				}
				return a.result(view.TokenOf(t, c.at), t.ID+"  revoked\n")
			})(cmd, args)
		},
	}
}
