package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// addDescription adds the description of the API itself.
func (s *API) addDescription() {
	for _, format := range []struct {
		name, contentType string
		write             func() ([]byte, error)
	}{
		{"json", "application/json", func() ([]byte, error) { return json.Marshal(s.api.OpenAPI()) }},
		{"yaml", "application/yaml", s.OpenAPI},
	} {
		add(s, rule{anyRole, noTenant}, huma.Operation{
			OperationID: "describe-" + format.name, Method: http.MethodGet, Path: "/openapi." + format.name, Tags: []string{"description"},
			Summary:   "Get this description as " + strings.ToUpper(format.name),
			Responses: map[string]*huma.Response{"200": {Description: "OpenAPI 3.1", Content: map[string]*huma.MediaType{format.contentType: {}}}},
		}, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			text, err := format.write()
			if err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				c.SetHeader("Content-Type", format.contentType)
				_, _ = c.BodyWriter().Write(text) // nobody is left to be told
			}}, nil
		})
	}
}
