package rest

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
)

// answersOf are the errors that an operation with that role and that input may answer with. Each follows from something that
// the operation has:
//
//	any operation              401, 403, 429  the token; a page of another origin
//	                           422            a parameter that it does not have, a wrong value
//	                           500, 503       the server, the database
//	                           431            see tooLong
//	a body                     408, 413       it comes too slowly, or is too large
//	a body that is required    400            it is missing
//	one thing that is named    404            there is none
//	a change of such a thing,  409            its state forbids it, or the key is that of something else. What
//	or a creation with a key                  only admins change has no such states: types, pauses, tokens
//	If-Match                   412            the thing has changed
//	If-Match that is required  428            it is missing
func answersOf(op huma.Operation, role access.Role, in reflect.Type) []int {
	out := []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusUnprocessableEntity,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	}
	body, has := in.FieldByName("Body")
	if has {
		out = append(out, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge)
	}
	if has && body.Type.Kind() != reflect.Pointer {
		out = append(out, http.StatusBadRequest)
	}
	names := strings.Contains(op.Path, "{") || has && namesExecution(body.Type)
	if names {
		out = append(out, http.StatusNotFound)
	}
	if op.Method != http.MethodGet && role != access.Admin && (names || hasHeader(in, idempotencyKey)) {
		out = append(out, http.StatusConflict)
	}
	if hasHeader(in, "If-Match") {
		out = append(out, http.StatusPreconditionFailed)
		if _, free := in.FieldByName("AnyMatch"); !free {
			out = append(out, http.StatusPreconditionRequired)
		}
	}
	return out
}

// tooLong is the answer of the HTTP server, before any operation, to an address and headers that are too large.
var tooLong = &huma.Response{
	Description: "The address and the headers are larger than the server takes: 64 KiB for mscheduler",
	Content:     map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
}

// namesExecution says whether a body names one execution, by its handle.
func namesExecution(body reflect.Type) bool {
	if body.Kind() == reflect.Pointer {
		body = body.Elem()
	}
	b, is := reflect.Zero(body).Interface().(interface{ formType() reflect.Type })
	if !is {
		return false
	}
	_, names := b.formType().FieldByName("Handle")
	return names
}

// hasHeader says whether an input has a header, also in the structures that it embeds.
func hasHeader(in reflect.Type, name string) bool {
	for i := range in.NumField() {
		f := in.Field(i)
		if f.Tag.Get("header") == name || f.Anonymous && hasHeader(f.Type, name) {
			return true
		}
	}
	return false
}
