package rest

import (
	"context"
	"net/http"
)

type meAnswer struct {
	Body struct {
		Token   string   `json:"token_id,omitempty" doc:"id of the token; absent for one of an identity provider, and where none is needed"`
		Name    string   `json:"name" doc:"name of the token, or the subject of one of an identity provider"`
		Role    string   `json:"role"`
		Tenants []string `json:"tenants,omitempty" doc:"tenants whose things it covers; absent = all"`
		Open    bool     `json:"open,omitempty" doc:"no token exists yet, and every request from the server's machine is allowed"`
	}
}

// addMe adds the operation by which programs learn what their token allows.
func (s *API) addMe() {
	add(s, rule{anyRole, noTenant}, among("tokens", op("get-me", http.MethodGet, "/me", "Get what the token of the request allows", "")), func(ctx context.Context, _ *struct{}) (*meAnswer, error) {
		g := grantOf(ctx)
		out := &meAnswer{}
		out.Body.Token, out.Body.Name, out.Body.Role, out.Body.Tenants = g.Token, g.Name, string(g.Role), g.Tenants
		out.Body.Open = g.Token == "" && g.Subject == ""
		return out, nil
	})
}
