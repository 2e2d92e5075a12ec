package rest

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/periodic"
)

// completion is what a target sends, see periodic.CompletionHandler.
type completion struct {
	Result    any     `json:"result,omitempty" doc:"result of the run, at most 1 MiB"`
	Error     *string `json:"error,omitempty" nullable:"true" doc:"why the run failed; excludes result"`
	Fatal     bool    `json:"fatal,omitempty" doc:"no retry helps; only with error"`
	PlanError bool    `json:"plan_error,omitempty" doc:"as fatal, with the failure kind plan_error; only with error"`
}

type completed struct {
	TaskID string `json:"task_id" doc:"task of the run"`
}

type uncompleted struct {
	Error  string `json:"error" doc:"for people"`
	Reason string `json:"reason" enum:"invalid,method,unknown,repeated,gone,too_large,later" doc:"for programs"`
}

// addCallbacks adds the completions of runs by their targets. Their handler is that of every process that
// accepts them, so it answers in its own form, and only its description is made here.
func (s *API) addCallbacks() {
	handler := periodic.CompletionHandler(s.producer)
	doc := s.api.OpenAPI()
	content := func(t reflect.Type, contentType string) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{contentType: {Schema: doc.Components.Schemas.Schema(t, true, "")}}
	}
	refused := reflect.TypeFor[uncompleted]()
	for id, method := range map[string]string{"complete-run": http.MethodPost, "complete-run-by-put": http.MethodPut} {
		s.mux.HandleFunc(method+" "+httptarget.CompletionPath+"{token}", handler.ServeHTTP)
		op := &huma.Operation{
			OperationID: id, Method: method, Path: httptarget.CompletionPath + "{token}", Tags: []string{"callbacks"},
			Summary:     "Complete the run of an asynchronous HTTP target",
			Description: "The token in the path is the right to do so, once, until the callback timeout of the rule: no other token is needed. An empty body is a success without a result.",
			Parameters:  []*huma.Param{{Name: "token", In: "path", Required: true, Description: "token of the run, which the call of the target contains", Schema: &huma.Schema{Type: huma.TypeString}}},
			RequestBody: &huma.RequestBody{Content: content(reflect.TypeFor[completion](), "application/json")},
			Responses: map[string]*huma.Response{
				"200": {Description: "The run is completed", Content: content(reflect.TypeFor[completed](), "application/json")},
				"403": {Description: "The request comes from a page of another origin", Content: content(reflect.TypeFor[huma.ErrorModel](), "application/problem+json")},
				"431": tooLong,
			},
			Extensions: map[string]any{"x-role": string(anyRole), "x-tenants": string(ownToken)},
		}
		for status, text := range map[int]string{
			http.StatusBadRequest: "The body is wrong", http.StatusNotFound: "The token names no run that waits for a completion",
			http.StatusMethodNotAllowed: "The target wants the other method, see the header Allow", http.StatusConflict: "The run is already completed",
			http.StatusGone: "The run no longer waits", http.StatusRequestEntityTooLarge: "The result is larger than 1 MiB", http.StatusServiceUnavailable: "The database does not answer; send it again",
		} {
			op.Responses[strconv.Itoa(status)] = &huma.Response{Description: text, Content: content(refused, "application/json")}
		}
		// A token that is no part of a path, such as "..", leads to where nothing is.
		op.Responses["404"].Content["application/problem+json"] = op.Responses["403"].Content["application/problem+json"]
		doc.AddOperation(op)
	}
}
