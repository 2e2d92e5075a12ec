package store

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOperatorsAreToldOfEveryIndex(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for _, i := range indexes {
		require.Contains(t, string(text), "`"+i.coll+"."+i.name+"`")
	}
}
