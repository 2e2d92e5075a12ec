package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/store"
)

// idempotencyKey is the header by which a client says that a request is the same as an earlier one.
const idempotencyKey = "Idempotency-Key"

// repeatable are the headers of an answer that its repetitions have, too.
var repeatable = []string{"Content-Type", "ETag", "Location"}

// longestKept is the largest answer that is kept, in bytes.
const longestKept = 4 << 20

// once answers a request that is repeated with its Idempotency-Key as it was answered first. The key is
// also that of what the request creates. So where the process died between the two, or the answer
// could not be stored, the repetition is carried out, and creates nothing twice.
//
// An answer is for its holder, and for a token of the same tenants. Only successes are kept: what was refused
// changed nothing, and of what was done in part the repetition does the rest, see [unfinished].
func (s *API) once(c huma.Context, next func(huma.Context)) {
	key := c.Header(idempotencyKey)
	declared := slices.ContainsFunc(c.Operation().Parameters, func(p *huma.Param) bool { return p.Name == idempotencyKey })
	if key == "" || !declared {
		next(c)
		return
	}
	ctx, u := c.Context(), c.URL()
	body, rest, arrived := s.readBody(c)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", u.RawQuery, body, c.Header("If-Match"), c.Header("If-None-Match")))
	grant := grantOf(ctx) // what the same person may see can change from token to token
	tenants := slices.Sorted(slices.Values(grant.Tenants))
	who := sha256.Sum256(fmt.Appendf(nil, "%q %t %q %q %q %q", grant.Who(), grant.Tenants == nil, tenants, c.Operation().OperationID, u.Path, key))
	id := hex.EncodeToString(who[:])
	var first *store.Answer
	if arrived { // otherwise there is no context for the database any more, and the answer says why
		var err error
		if first, err = s.store.Answers.Get(ctx, id); err != nil {
			s.fail(c, s.problem(err))
			return
		}
	}
	if first == nil {
		r := &repeated{humaContext: c, body: rest}
		next(huma.WithValue(r, repeatedKey{}, r))
		first = &store.Answer{ID: id, Request: sum[:], Status: r.Status(), Headers: r.headers, Body: r.answer.Bytes()}
		if first.Status < 300 && !r.unfinished && len(first.Body) <= longestKept {
			kept, err := s.store.Answers.Keep(ctx, first)
			if err != nil {
				s.config.Logger.Warn().Err(err).Str("operation", c.Operation().OperationID).Msg("could not store the answer to a request; a repetition is carried out again")
			} else if kept != nil { // also that of somebody who was quicker
				first = kept
			}
		}
	}
	if !bytes.Equal(first.Request, sum[:]) {
		s.fail(c, huma.Error422UnprocessableEntity("the request is invalid", &huma.ErrorDetail{
			Location: "header." + idempotencyKey, Message: "was used for another request of this operation; use a new key for a new request",
		}))
		return
	}
	for name, value := range first.Headers {
		c.SetHeader(name, value)
	}
	c.SetStatus(first.Status)
	_, _ = c.BodyWriter().Write(first.Body) // nobody is left to be told
}

// fail answers with an error.
func (s *API) fail(c huma.Context, err error) {
	var told huma.StatusError
	if !errors.As(err, &told) {
		told = huma.Error500InternalServerError("the request failed; see the server's log")
	}
	var more huma.HeadersError
	if errors.As(err, &more) {
		for name, values := range more.GetHeaders() {
			c.SetHeader(name, values[0])
		}
	}
	c.SetHeader("Content-Type", "application/problem+json")
	c.SetStatus(told.GetStatus())
	_ = s.api.Marshal(c.BodyWriter(), "application/json", told) // nobody is left to be told
}

// bodyTime is how long a body may take to arrive.
const bodyTime = 5 * time.Second

// readBody reads the body, and returns a reader of the same: with the error, if the body did not arrive.
func (s *API) readBody(c huma.Context) (body []byte, same io.Reader, arrived bool) {
	reader := c.BodyReader()
	_ = c.SetReadDeadline(s.store.Local().Now().Add(bodyTime)) // where it cannot be set, the server's own applies
	body, err := io.ReadAll(io.LimitReader(reader, maxBody+1))
	if err != nil {
		return body, io.MultiReader(bytes.NewReader(body), brokenBody{err}), false
	}
	return body, io.MultiReader(bytes.NewReader(body), reader), true
}

// brokenBody is a body that did not arrive.
type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

type humaContext = huma.Context // which has a method Context

// repeated is a request whose answer is kept before it is sent.
type repeated struct {
	humaContext
	body       io.Reader
	status     int
	headers    map[string]string
	answer     bytes.Buffer
	unfinished bool
}

type repeatedKey struct{}

// unfinished says that a part of the request was not done, so that a repetition is carried out.
func unfinished(ctx context.Context) {
	if r, is := ctx.Value(repeatedKey{}).(*repeated); is {
		r.unfinished = true
	}
}

// BodyReader implements [huma.Context].
func (r *repeated) BodyReader() io.Reader { return r.body }

// SetReadDeadline implements [huma.Context]. The body has arrived, see [keepsAlive].
func (*repeated) SetReadDeadline(time.Time) error { return nil }

// BodyWriter implements [huma.Context].
func (r *repeated) BodyWriter() io.Writer { return &r.answer }

// SetStatus implements [huma.Context].
func (r *repeated) SetStatus(code int) { r.status = code }

// Status implements [huma.Context].
func (r *repeated) Status() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// SetHeader implements [huma.Context].
func (r *repeated) SetHeader(name, value string) {
	if slices.ContainsFunc(repeatable, func(kept string) bool { return strings.EqualFold(kept, name) }) {
		if r.headers == nil {
			r.headers = map[string]string{}
		}
		r.headers[name] = value
		return
	}
	r.humaContext.SetHeader(name, value)
}

// AppendHeader implements [huma.Context].
func (r *repeated) AppendHeader(name, value string) { r.SetHeader(name, value) }
