package rest

import (
	"encoding/json"
	"time"
)

// DescriptionJSON is the description of the API as JSON.
func (s *API) DescriptionJSON() ([]byte, error) { return json.Marshal(s.api.OpenAPI()) }

// Poll has the API watch as if the deployment had no change streams.
func (s *API) Poll(every time.Duration) { s.polls, s.pollEvery = true, every }
