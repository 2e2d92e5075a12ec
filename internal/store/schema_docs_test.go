package store

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOperatorsAreToldOfEveryIndex(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference.md")
	require.NoError(t, err)
	var missing []string
	for _, i := range indexes {
		if name := i.coll + "." + i.name; !strings.Contains(string(text), "`"+name+"`") {
			missing = append(missing, name)
		}
	}
	require.Empty(t, missing, "the table of indexes in docs/reference.md lacks them")
}
