package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/model"
)

// statusOf is the HTTP status of each kind of failure.
var statusOf = map[failure.Kind]int{
	failure.Invalid:     http.StatusUnprocessableEntity,
	failure.NotFound:    http.StatusNotFound,
	failure.Changed:     http.StatusPreconditionFailed,
	failure.Refused:     http.StatusConflict,
	failure.Unreachable: http.StatusServiceUnavailable,
	failure.Interrupted: http.StatusServiceUnavailable, // the server stops, or nobody waits for the answer
	failure.Forbidden:   http.StatusInternalServerError,
	failure.Other:       http.StatusInternalServerError,
}

// problem is an error of a door as the API tells it: RFC 9457, with each wrong field. Texts of the database
// stay in the log, since they may tell of its deployment.
func (s *API) problem(err error) error {
	if err == nil {
		return nil
	}
	var told huma.StatusError
	if errors.As(err, &told) {
		return err
	}
	kind := failure.Of(err)
	status := statusOf[kind]
	switch kind {
	case failure.Invalid:
		return huma.NewError(status, "the request is invalid", details(err)...)
	case failure.Unreachable:
		s.config.Logger.Warn().Err(err).Msg("the database does not answer")
		return huma.ErrorWithHeaders(huma.NewError(status, "the database does not answer; retry"), http.Header{"Retry-After": {"1"}})
	case failure.Forbidden:
		s.config.Logger.Error().Err(err).Msg("the database refuses")
		return huma.NewError(status, "the database refuses; see the server's log")
	case failure.Interrupted:
		s.config.Logger.Debug().Err(err).Msg("a request was cut off")
		return huma.NewError(status, "the request was cut off; retry")
	case failure.Other:
		s.config.Logger.Error().Err(err).Msg("a request failed")
		return huma.NewError(status, "the request failed; see the server's log")
	default:
		return huma.NewError(status, err.Error())
	}
}

// maxDetails bounds the wrong fields that an answer names.
const maxDetails = 100

// details name the wrong fields of an input.
func details(err error) []error {
	all := wrongFields(err)
	if len(all) > maxDetails {
		all = append(all[:maxDetails:maxDetails], errors.New("more mistakes are not listed"))
	}
	return all
}

func wrongFields(err error) (out []error) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			if errors.Is(e, model.ErrInvalid) {
				out = append(out, wrongFields(e)...)
			}
		}
		return out
	}
	var written *form.FieldError
	var invalid *model.InvalidError
	switch {
	case errors.As(err, &written):
		return []error{&huma.ErrorDetail{Location: strings.TrimSuffix("body."+written.Field, "."), Message: strings.TrimSpace(written.Field + " " + written.Reason)}}
	case errors.As(err, &invalid):
		return []error{&huma.ErrorDetail{Location: invalid.Field, Message: invalid.Error()}}
	default:
		return []error{err}
	}
}

// refuse answers a request that no operation has seen.
func refuse(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(huma.NewError(status, reason)) // nobody is left to be told
}

// nowhere answers requests for a path that no operation has, or not with that method.
func (s *API) nowhere(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		refuse(w, http.StatusNotFound, "there is nothing at this path")
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	refuse(w, http.StatusMethodNotAllowed, "the path has no operation with this method")
}
