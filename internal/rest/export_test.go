package rest

import "encoding/json"

// DescriptionJSON is the description of the API as JSON.
func (s *API) DescriptionJSON() ([]byte, error) { return json.Marshal(s.api.OpenAPI()) }
