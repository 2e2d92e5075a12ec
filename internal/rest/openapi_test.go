package rest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

const described = "../../docs/api/openapi.yaml"

// The description in the docs is the one that the code gives. MSCHEDULER_UPDATE=1 writes it.
func TestTheDescriptionInTheDocsIsThatOfTheCode(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests come one after the other: make scenarios runs it without the race detector")
	}
	text, err := newWorld(t).api.OpenAPI()
	require.NoError(t, err)
	if os.Getenv("MSCHEDULER_UPDATE") != "" {
		require.NoError(t, os.WriteFile(described, text, 0o644))
	}
	stored, err := os.ReadFile(described)
	require.NoError(t, err)
	if string(stored) != string(text) { // the two as a message would be a book
		t.Error("docs/api/openapi.yaml is out of date; run: MSCHEDULER_UPDATE=1 go test ./internal/rest -run Description")
	}
}
