package rest

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// keepsAlive sets no deadline for the body of a request that has none. Once a body has arrived, net/http reads ahead
// on the connection. A deadline that expires then cancels the context of the connection, which stays open, and so
// every later request on it fails.
func keepsAlive(c huma.Context, next func(huma.Context)) {
	if r, _ := humago.Unwrap(c); r.ContentLength == 0 {
		c = bodiless{c}
	}
	next(c)
}

// bodiless is a request without a body.
type bodiless struct{ humaContext }

// SetReadDeadline implements [huma.Context].
func (bodiless) SetReadDeadline(time.Time) error { return nil }

// Unwrap is for [humago.Unwrap].
func (b bodiless) Unwrap() huma.Context { return b.humaContext }
