package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// RulePath names a periodic rule.
type RulePath struct {
	Tenant string `path:"tenant" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"tenant of the rule; - for a rule without one"`
	Name   string `path:"name" maxLength:"200" doc:"name of the rule, percent-encoded where it has other characters than paths have"`
}

const ruleAt = "/periodics/{tenant}/{name}"

// rule is the stored rule that the path names.
func (p *RulePath) rule(ctx context.Context, s *API) (*schedule.Rule, error) {
	return s.rules.Named(ctx, p.Tenant, p.Name)
}

type ruleAnswer struct {
	Status int
	ETag   string `header:"ETag" doc:"the version of the rule: edits raise it, ticks and runs do not"`
	Body   document[schedule.Rule]
}

func answerRule(r *schedule.Rule, err error) (*ruleAnswer, error) {
	if err != nil {
		return nil, err
	}
	doc, err := view.Stored(r, "id")
	return &ruleAnswer{Status: http.StatusOK, ETag: etag(r.Version), Body: document[schedule.Rule]{doc}}, err
}

type ruleList struct {
	Body struct {
		Rules      []document[schedule.Rule] `json:"rules"`
		Unreadable []unreadableRule          `json:"unreadable,omitempty" doc:"rules that this release cannot read; they do not fire"`
		Next       string                    `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

// unreadableRule is a rule that a later release, or a person, has written.
type unreadableRule struct {
	Tenant string `json:"tenant,omitempty"`
	Name   string `json:"name"`
	Error  string `json:"error"`
}

// periodicOp is an operation on rules.
func (s *API) addPeriodics() {
	add(s, rule{access.Viewer, tenantOfFilter}, op("list-periodics", http.MethodGet, "/periodics", "List periodic rules, sorted by tenant and name",
		"Rules that this release cannot read are named apart."), s.listRules)
	create := op("create-periodic", http.MethodPost, "/periodics", "Create a periodic rule",
		"The rule fires if enabled is true. If the tenant has a rule with that name, the answer is 409. A repetition with the same Idempotency-Key gets the rule, if it is as the request says; one with secrets cannot be compared.")
	create.DefaultStatus = http.StatusCreated
	add(s, rule{access.Operator, tenantOfBody}, create, s.createRule)
	add(s, rule{access.Viewer, tenantOfPath}, op("get-periodic", http.MethodGet, ruleAt, "Get a periodic rule", ""), func(ctx context.Context, in *struct{ RulePath }) (*ruleAnswer, error) {
		return answerRule(in.rule(ctx, s))
	})
	add(s, rule{access.Operator, tenantOfPath}, op("put-periodic", http.MethodPut, ruleAt, "Store the definition of a periodic rule",
		"The body describes the rule completely: what it leaves out is removed, except enabled and the name. The secret *** is the stored one. If-Match names the version that was read."), s.putRule)
	gone := op("delete-periodic", http.MethodDelete, ruleAt, "Delete a periodic rule",
		"It never fires again. Runs that wait are cancelled, and those that run go on. Its name becomes free, and its runs stay until their retention ends.")
	gone.DefaultStatus = http.StatusNoContent
	add(s, rule{access.Operator, tenantOfPath}, gone, func(ctx context.Context, in *struct {
		RulePath
		IfMatch
	}) (*struct{}, error) {
		version, err := in.version()
		if err != nil {
			return nil, err
		}
		r, err := in.rule(ctx, s)
		if err != nil {
			return nil, err
		}
		return nil, s.rules.Delete(ctx, r.ID, version)
	})
}

func (s *API) listRules(ctx context.Context, in *struct {
	Tenant string `query:"tenant" doc:"tenant; - for rules without one"`
	Name   string `query:"name" maxLength:"400" doc:"rules of the tenant whose name begins with this text; needs tenant"`
	Page
}) (*ruleList, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	if in.Name != "" {
		unread := store.Unread{}
		rules, next, err := begun(tenant, "name", in.Token, "rule", in.Limit, unread, func(after string, limit int) ([]*schedule.Rule, []store.Unreadable, error) {
			return s.store.Rules.Named(ctx, tenant, in.Name, after, limit)
		}, func(r *schedule.Rule) string { return r.Living }, func(*schedule.Rule) bool { return true })
		return answerRules(rules, unread, next, err)
	}
	from, err := placeOf(in.Token)
	if err != nil {
		return nil, err
	}
	rules, err := s.rules.List(ctx, tenant, from.id, in.Limit)
	unread := store.Unread{}
	if err := unread.Add(err); err != nil {
		return nil, err
	}
	last := "" // of a full page
	if len(rules)+len(unread) == in.Limit {
		for living := range unread {
			last = max(last, living)
		}
		if len(rules) > 0 {
			last = max(last, rules[len(rules)-1].Living)
		}
	}
	return answerRules(rules, unread, after(last), nil)
}

// rulesUnread are rules that cannot be read, sorted by tenant and name.
func rulesUnread(unread store.Unread) (out []unreadableRule) {
	for _, u := range listed(unread) {
		tenant, name, _ := strings.Cut(u.ID, "/")
		if tenant == model.NoTenant {
			tenant = ""
		}
		out = append(out, unreadableRule{tenant, name, u.Error})
	}
	return out
}

func answerRules(rules []*schedule.Rule, unread store.Unread, next string, err error) (*ruleList, error) {
	if err != nil {
		return nil, err
	}
	out := &ruleList{}
	out.Body.Unreadable, out.Body.Next = rulesUnread(unread), next
	out.Body.Rules, err = documentsOf(rules)
	return out, err
}

func (s *API) createRule(ctx context.Context, in *struct {
	Idempotent
	Body body[form.Rule]
}) (*ruleAnswer, error) {
	f := in.Body.form
	tenant, err := tenantIn(ctx, "body.tenant", f.Tenant)
	if err != nil {
		return nil, err
	}
	f.Tenant = tenant
	edit, err := s.edit(ctx, f, nil)
	if err != nil {
		return nil, err
	}
	made, err := edit.Write(ctx, s.rules)
	if errors.Is(err, store.ErrRuleExists) && in.RequestKey != "" {
		made, err = s.createdBefore(ctx, f, err)
	}
	out, err := answerRule(made, err)
	if err == nil {
		out.Status = http.StatusCreated
	}
	return out, err
}

// createdBefore is the rule of a request that is repeated although its answer was not stored: the one that
// is as the request says. exists is the error for any other.
func (s *API) createdBefore(ctx context.Context, f *form.Rule, exists error) (*schedule.Rule, error) {
	stored, err := s.rules.Named(ctx, f.Tenant, f.Name)
	if err != nil {
		return nil, err
	}
	edit, err := s.edit(ctx, f, stored)
	if err != nil {
		return nil, err
	}
	enabled := f.Enabled != nil && *f.Enabled
	if edit.Edits() || enabled && stored.Status == tickplan.StatusNew {
		return nil, exists
	}
	return stored, nil
}

// edit is what a written rule does to the stored one, nil for none.
func (s *API) edit(ctx context.Context, f *form.Rule, stored *schedule.Rule) (rulechange.Edit, error) {
	if f.Version != 0 {
		return rulechange.Edit{}, input.Invalid("body.version", "belongs to the header If-Match")
	}
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return rulechange.Edit{}, err
	}
	edit, err := rulechange.Of(f, stored, s.secrets, now)
	return edit, input.Under("body", input.Renamed(err, form.OptionField))
}

func (s *API) putRule(ctx context.Context, in *struct {
	RulePath
	IfMatch
	Body body[form.Rule]
}) (*ruleAnswer, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	f := in.Body.form
	if f.Tenant != "" && f.Tenant != in.Tenant {
		return nil, input.Invalid("body.tenant", "is %q; the path names %q, and a rule cannot change its tenant", f.Tenant, in.Tenant)
	}
	if f.Tenant = in.Tenant; f.Name == "" {
		f.Name = in.Name
	}
	stored, err := in.rule(ctx, s)
	if err != nil {
		return nil, err
	}
	if version != 0 && stored.Version != version {
		return nil, fmt.Errorf("the rule was %w: its version is %d, not %d", model.ErrChanged, stored.Version, version)
	}
	edit, err := s.edit(ctx, f, stored)
	if err != nil {
		return nil, err
	}
	return answerRule(edit.Write(ctx, s.rules))
}
