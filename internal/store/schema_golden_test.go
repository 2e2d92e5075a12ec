package store

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A database that has the version of the schema is taken to have its indexes, and these are compared by name alone. So a
// change of an index or of minReader needs a new SchemaVersion, and an index with other keys or options a new name.
// MSCHEDULER_UPDATE=1 then writes the list; it refuses without a new version.
func TestTheIndexesOfAVersionDoNotChange(t *testing.T) {
	const path = "testdata/schema.txt"
	version := fmt.Sprintf("version %d, min_reader %d\n", SchemaVersion, minReader)
	var list strings.Builder
	list.WriteString(version)
	for _, ix := range indexes {
		list.WriteString(ix.coll + "." + ix.name + ":")
		for _, k := range ix.keys {
			list.WriteString(fmt.Sprintf(" %s %v", k.Key, k.Value))
		}
		for _, o := range []struct {
			is   bool
			text string
		}{
			{ix.only != "", "where " + ix.only + " exists"}, {ix.status != "", "of " + string(ix.status)}, {ix.gone, "deletes"},
			{ix.ttl > 0, "deletes after " + ix.ttl.String()}, {ix.unique, "unique"},
		} {
			if o.is {
				list.WriteString(", " + o.text)
			}
		}
		list.WriteString("\n")
	}
	stored, err := os.ReadFile(path)
	if os.Getenv("MSCHEDULER_UPDATE") != "" && string(stored) != list.String() {
		require.False(t, strings.HasPrefix(string(stored), version[:strings.Index(version, ",")+1]), "raise SchemaVersion first")
		require.NoError(t, os.WriteFile(path, []byte(list.String()), 0o600))
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(stored), list.String(), "raise SchemaVersion, then run: MSCHEDULER_UPDATE=1 go test ./internal/store -run IndexesOfAVersion")
}
