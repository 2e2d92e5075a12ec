package rest

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/store"
)

// tenancy says how an operation keeps to the tenants of a token.
type tenancy string

const (
	tenantOfPath   tenancy = "path"   // the path names the tenant: a thing of another one is not found
	tenantOfFilter tenancy = "filter" // the tenant that a list or a count is about
	tenantOfBody   tenancy = "body"   // the tenant that the body names
	tenantOfHandle tenancy = "handle" // the tenant of the task whose execution a handle names
	ownToken       tenancy = "token"  // the path has a token of its own, of an execution: whoever has it needs no other one
	noTenant       tenancy = "none"   // shows nothing of any tenant
	everyTenant    tenancy = "every"  // what belongs to no tenant: only for tokens without tenants
)

// anyRole is the role of operations that every token allows.
const anyRole access.Role = ""

// rule says who may call an operation.
type rule struct {
	role    access.Role
	tenants tenancy
}

type (
	grantKey struct{}
	callKey  struct{} // of the request itself
)

// grantOf is what the token of a request allows.
func grantOf(ctx context.Context) access.Grant {
	g, _ := ctx.Value(grantKey{}).(access.Grant)
	return g
}

// admit lets requests pass whose token allows the operation.
func (s *API) admit(need rule, r recording) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		grant, err := s.authenticate(c)
		switch {
		case err != nil:
		case need.role != anyRole && !grant.Role.Includes(need.role):
			err = huma.Error403Forbidden("the token's role is " + string(grant.Role) + "; the operation requires " + string(need.role))
		case need.tenants == everyTenant && grant.Tenants != nil:
			err = huma.Error403Forbidden("the operation requires a token for every tenant")
		case need.tenants == tenantOfPath && !grant.Sees(c.Param("tenant")):
			err = huma.Error404NotFound("not found") // whether it exists is not this token's business
		case need.tenants == tenantOfPath && grant.Tenants != nil:
			err = s.problem(s.mayName(c, grant))
		}
		if err == nil {
			next(huma.WithValue(huma.WithValue(c, grantKey{}, grant), callKey{}, c))
			return
		}
		var told huma.StatusError
		if !errors.As(err, &told) {
			told = huma.Error500InternalServerError("the request failed; see the server's log")
		}
		if grant.Role != "" && need.changes(*c.Operation()) {
			s.refusedByRule(c, r, grant, told)
		}
		_ = huma.WriteErr(s.api, c, told.GetStatus(), told.Error())
	}
}

// mayName refuses a token with tenants where the path names a bulk job that goes over all tenants. Such a job
// has no tenant, but its counts and errors are about those of others, and to run it again changes theirs.
func (s *API) mayName(c huma.Context, grant access.Grant) error {
	key := c.Param("key")
	if strings.Contains(c.Operation().Path, jobAt) {
		key = c.Param("id")
	} else if c.Param("type") != bulk.TaskType {
		return nil
	}
	return s.mayRead(c.Context(), grant, c.Param("tenant")+"/"+bulk.TaskType+"/"+key, 0)
}

// mayRead refuses a token with tenants where a life of a task, 0 = the newest, is a bulk job that goes over all
// tenants. The operation tells of a life that is not there.
func (s *API) mayRead(ctx context.Context, grant access.Grant, id string, generation int64) error {
	if grant.Tenants == nil {
		return nil
	}
	raw, err := s.store.History.LifeRaw(ctx, id, generation)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err == nil && hidden(grant, raw):
		return huma.Error404NotFound("not found")
	}
	return err
}

// hidden says whether a task is a bulk job that the token does not see.
func hidden(grant access.Grant, task bson.Raw) bool {
	return grant.Tenants != nil && bulk.OfAllTenants(task)
}

// everybody may do everything while no token exists.
var everybody = access.Grant{Role: access.Admin}

func (s *API) authenticate(c huma.Context) (access.Grant, error) {
	if s.config.NoTokens {
		if exist, err := s.guard.Any(c.Context()); err != nil {
			return access.Grant{}, s.problem(err)
		} else if !exist {
			if !direct(c) {
				return access.Grant{}, huma.Error403Forbidden("as long as there is no token, this server answers only to its own machine")
			}
			return everybody, nil
		}
	}
	kind, text, _ := strings.Cut(c.Header("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || text == "" {
		c.AppendHeader("WWW-Authenticate", "Bearer")
		return access.Grant{}, huma.Error401Unauthorized("a token is required: Authorization: Bearer TOKEN")
	}
	grant, err := s.guard.Check(c.Context(), text, c.RemoteAddr())
	var many *access.TooManyError
	switch {
	case errors.As(err, &many):
		c.AppendHeader("Retry-After", strconv.Itoa(int(many.RetryAfter.Seconds())+1))
		return grant, huma.Error429TooManyRequests("too many failed attempts; retry later")
	case errors.Is(err, access.ErrNoToken):
		c.AppendHeader("WWW-Authenticate", `Bearer error="invalid_token"`)
		return grant, huma.Error401Unauthorized("the token is not valid")
	case errors.Is(err, access.ErrExpired):
		c.AppendHeader("WWW-Authenticate", `Bearer error="invalid_token"`)
		return grant, huma.Error401Unauthorized("the token has expired")
	case errors.Is(err, access.ErrNoRights):
		return grant, huma.Error403Forbidden(err.Error())
	case errors.Is(err, access.ErrNoKeys):
		c.AppendHeader("Retry-After", strconv.Itoa(int(access.Window.Seconds())))
		return grant, huma.Error503ServiceUnavailable("the keys of the identity provider cannot be read; retry")
	}
	return grant, s.problem(err)
}

// mayStill refuses a request that goes on when its token no longer allows what it did.
func (s *API) mayStill(ctx context.Context) error {
	call, _ := ctx.Value(callKey{}).(huma.Context)
	grant, err := s.authenticate(call)
	if before := grantOf(ctx); err == nil && (!grant.Role.Includes(before.Role) || !slices.Equal(grant.Tenants, before.Tenants)) {
		err = huma.Error403Forbidden("the rights of the token have changed; ask again")
	}
	return err
}

// direct says whether a request comes from this machine, and not for another one through a proxy on it.
func direct(c huma.Context) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"} {
		if c.Header(name) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(c.RemoteAddr())
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// tenantIn is the tenant that a request is about, for a token that may see it. wanted "" is every tenant
// for a token without tenants, and the only tenant of a token that has one.
func tenantIn(ctx context.Context, field, wanted string) (string, error) {
	g := grantOf(ctx)
	switch {
	case g.Tenants == nil, wanted != "" && g.Sees(wanted):
		return wanted, nil
	case wanted != "":
		return "", huma.NewError(http.StatusForbidden, "the token is not for this tenant", &huma.ErrorDetail{Location: field, Message: field + " is " + strconv.Quote(wanted) + "; the token has other tenants"})
	case len(g.Tenants) == 1:
		return g.Tenants[0], nil
	default:
		return "", huma.NewError(http.StatusUnprocessableEntity, "the request is invalid", &huma.ErrorDetail{Location: field, Message: field + " is required: the token has several tenants"})
	}
}

// ofTenant says whether the token sees a task.
func ofTenant(ctx context.Context, taskID string) bool {
	tenant, _, _ := strings.Cut(taskID, "/")
	return grantOf(ctx).Sees(tenant)
}
