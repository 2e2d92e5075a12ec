package rest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// minting is the body that creates a token.
type minting struct {
	Name      string         `json:"name,omitzero" doc:"for people: 1 to 100 of a-z A-Z 0-9 . _ -"`
	Role      string         `json:"role,omitzero" doc:"viewer, operator, admin or worker"`
	Tenants   []string       `json:"tenants,omitzero" doc:"tenants whose things it covers; - for things without one; absent = all"`
	ExpiresIn *form.Duration `json:"expires_in,omitzero" doc:"time until it expires, such as 90d (default: never)"`
	ExpiresAt *form.Time     `json:"expires_at,omitzero" doc:"time at which it expires, in the place of expires_in"`
}

type tokenList struct {
	Body struct {
		Tokens []view.Token `json:"tokens" doc:"the oldest first; those that were revoked or have expired stay for 90 days"`
		Next   string       `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

type mintedAnswer struct {
	Body struct {
		Text string `json:"token" doc:"what clients send; shown only this once"`
		view.Token
	}
}

const tokenAt = "/tokens/{id}"

// addTokens adds the operations on access tokens. They are for tokens without tenants: a tenant's admin could
// otherwise see, and lock out, those of others.
func (s *API) addTokens() {
	need := rule{access.Admin, everyTenant}
	add(s, need, op("list-tokens", http.MethodGet, "/tokens", "List the access tokens, without their secrets, the oldest first",
		sparse), s.listTokens)
	add(s, need, huma.Operation{
		OperationID: "create-token", Method: http.MethodPost, Path: "/tokens", Tags: []string{"tokens"}, Summary: "Create an access token", DefaultStatus: http.StatusCreated,
		Description: "The answer has its text, which nobody can read again. So no answer is kept for an Idempotency-Key: if it is lost, revoke the token and create another one.",
	}, s.createToken)
	add(s, need, op("revoke-token", http.MethodPost, tokenAt+"/revoke", "Revoke an access token for good",
		"Every process refuses it within five seconds. A token that is revoked already stays as it is."), s.revokeToken)
}

func (s *API) listTokens(ctx context.Context, in *struct{ Page }) (*tokenList, error) {
	from, err := placeOf(in.Token)
	if err != nil {
		return nil, err
	}
	if err := s.store.FreshClock(ctx); err != nil { // by which they expire
		return nil, err
	}
	tokens, unread, next, err := s.store.Tokens.List(ctx, store.TokenPlace{At: from.at, ID: from.id}, in.Limit)
	if err != nil {
		return nil, err
	}
	for _, u := range unread { // the others can be read
		s.config.Logger.Warn().Err(u.Err).Str("token", u.ID).Msg("a token cannot be read")
	}
	out := &tokenList{}
	out.Body.Tokens = slices.Grow([]view.Token{}, len(tokens))
	for _, t := range tokens {
		out.Body.Tokens = append(out.Body.Tokens, view.TokenOf(t, s.store.Clock.Now()))
	}
	if next.ID != "" {
		out.Body.Next = place{next.At, next.ID}.token()
	}
	return out, nil
}

func (s *API) createToken(ctx context.Context, in *struct{ Body body[minting] }) (*mintedAnswer, error) {
	f := in.Body.form
	w := access.Wanted{Name: f.Name, Role: f.Role, Tenants: f.Tenants, CreatedBy: safetext.Clip(grantOf(ctx).Who(), 150)}
	err := w.Check()
	if f.Tenants != nil && len(f.Tenants) == 0 { // it would see all of them
		err = errors.Join(err, input.Invalid("tenants", "names no tenant; leave it out for all tenants"))
	}
	switch {
	case f.ExpiresIn != nil && f.ExpiresAt != nil:
		err = errors.Join(err, input.Invalid("expires_in", "excludes expires_at"))
	case f.ExpiresIn != nil && *f.ExpiresIn <= 0:
		err = errors.Join(err, input.Invalid("expires_in", "is %s; must be positive", *f.ExpiresIn))
	case f.ExpiresAt != nil:
		var wrong error
		if w.ExpiresAt, wrong = form.ParseTime(string(*f.ExpiresAt), time.UTC, time.Time{}); wrong != nil {
			err = errors.Join(err, input.Invalid("expires_at", "is %q; %v", safetext.Clip(string(*f.ExpiresAt), 40), wrong))
		}
	}
	if err != nil {
		return nil, input.Under("body", err)
	}
	if f.ExpiresIn != nil {
		if err := s.store.FreshClock(ctx); err != nil {
			return nil, err
		}
		w.ExpiresAt = s.store.Clock.Now().Add(time.Duration(*f.ExpiresIn))
	}
	text, t, err := access.Create(ctx, s.store, w)
	if err != nil {
		return nil, input.Under("body", err)
	}
	out := &mintedAnswer{}
	out.Body.Text, out.Body.Token = text, view.TokenOf(t, s.store.Clock.Now())
	return out, nil
}

func (s *API) revokeToken(ctx context.Context, in *struct {
	ID string `path:"id" doc:"id of the token, or its whole text"`
}) (*answer[view.Token], error) {
	id, err := access.ParseID("path.id", in.ID)
	if err != nil {
		return nil, err
	}
	t, err := access.Revoke(ctx, s.store, id)
	if err != nil {
		return nil, err
	}
	return answered(view.TokenOf(t, s.store.Clock.Now()), nil)
}
