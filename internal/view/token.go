package view

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

// Token is an access token as JSON, without its secret and the hash of that.
type Token struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Tenants    []string `json:"tenants,omitzero"` // absent = all
	State      string   `json:"state"`            // active, expired or revoked
	CreatedAt  string   `json:"created_at"`
	CreatedBy  string   `json:"created_by"`
	ExpiresAt  string   `json:"expires_at,omitempty"`
	LastUsedAt string   `json:"last_used_at,omitempty"`
	RevokedAt  string   `json:"revoked_at,omitempty"`
}

// TokenOf is a token as it is now, by the database's time.
func TokenOf(t *store.Token, now time.Time) Token {
	state := "active"
	switch {
	case !t.RevokedAt.IsZero():
		state = "revoked"
	case t.Expired(now):
		state = "expired"
	}
	return Token{
		ID: t.ID, Name: t.Name, Role: t.Role, Tenants: t.Tenants, State: state, CreatedAt: Time(t.CreatedAt), CreatedBy: t.CreatedBy,
		ExpiresAt: Time(t.ExpiresAt), LastUsedAt: Time(t.LastUsedAt), RevokedAt: Time(t.RevokedAt),
	}
}
