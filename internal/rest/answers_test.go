package rest_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/rest"
)

// describedOnly serves an API. Each answer of an operation, over all tests of the package, is one that its
// description has.
func describedOnly(t *testing.T, api *rest.API) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := api.Described(r)
		seen := &statusSeen{ResponseWriter: w, status: http.StatusOK}
		api.ServeHTTP(seen, r)
		if op != nil {
			assert.Contains(t, op.Responses, strconv.Itoa(seen.status), "%s answers what its description does not have", op.OperationID)
		}
	})
}

// statusSeen remembers the status of an answer.
type statusSeen struct {
	http.ResponseWriter
	status int
	begun  bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusSeen) WriteHeader(status int) {
	if !w.begun {
		w.status, w.begun = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusSeen) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestTheErrorsOfAnOperationAreThoseOfItsKind(t *testing.T) {
	t.Parallel()
	text, err := newWorld(t).api.DescriptionJSON()
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]struct {
			ID         string `json:"operationId"`
			Role       string `json:"x-role"`
			Tenants    string `json:"x-tenants"`
			Parameters []struct{ Name string }
			Body       *struct{ Required bool } `json:"requestBody"`
			Responses  map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	manyHandles := map[string]bool{"ping": true, "end-many": true} // each of them has an answer of its own
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.Tenants == "token" { // a completion: it describes each answer in words of its own
				continue
			}
			takes := map[string]bool{}
			for _, p := range op.Parameters {
				takes[p.Name] = true
			}
			one := strings.Contains(path, "{") || op.Tenants == "handle" && !manyHandles[op.ID]
			edit := method == "put" || method == "patch" || method == "delete"
			for status, want := range map[string]bool{
				"400": op.Body != nil && op.Body.Required, "408": op.Body != nil, "413": op.Body != nil,
				"404": one, "409": method != "get" && op.Role != "admin" && (one || takes["Idempotency-Key"]),
				"412": takes["If-Match"], "428": edit,
				"401": true, "403": true, "422": true, "429": true, "431": true, "500": true, "503": true, "405": false, "406": false, "415": false,
			} {
				_, has := op.Responses[status]
				require.Equal(t, want, has, "%s: %s", op.ID, status)
			}
		}
	}
}
