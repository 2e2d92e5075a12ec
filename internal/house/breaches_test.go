package house

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plant is a small tree of one package with the given imports beside those it needs.
func plant(rel string, imports ...string) tree {
	packages := map[string]pkg{}
	for place := range mayImport { // so that no line of the table is called stale
		p, _ := cutSubtree(place)
		packages[module+"/"+p] = pkg{ImportPath: module + "/" + p, Doc: "Package x."}
	}
	packages[module+"/"+rel] = pkg{ImportPath: module + "/" + rel, Doc: "Package x.", Imports: imports}
	return tree{packages: packages}
}

func cutSubtree(place string) (string, bool) {
	if n := len(place) - len("/..."); n > 0 && place[n:] == "/..." {
		return place[:n], true
	}
	return place, false
}

func TestAPlantedImportIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(tree) []string
		tree  tree
		says  string
	}{
		{"model imports the store", directions, plant("model", module+"/internal/store"), "model imports internal/store"},
		{"the store imports a consumer", directions, plant("internal/store", module+"/consumer"), "internal/store imports consumer"},
		{"a producer imports the command line", directions, plant("producer", module+"/internal/cli"), "producer imports internal/cli"},
		{"the embedded server imports the model", directions, plant("internal/embedded/plan", module+"/model"), "internal/embedded/plan imports model"},
		{"a package without a place", directions, plant("internal/attic"), "internal/attic has no place"},
		{"somebody imports the binary", importedByNobody, plant("internal/cli", module+"/cmd/mscheduler"), "nothing imports that"},
		{"somebody imports the scenarios", importedByNobody, plant("consumer", module+"/integration/chaos"), "nothing imports that"},
		{"a library takes a new dependency", foreign, plant("consumer", "github.com/google/uuid"), "consumer imports github.com/google/uuid"},
		{"a library carries the command line", reaching, plant("producer", "github.com/spf13/cobra"), "must not carry"},
		{"the binary carries testing", reaching, plant("cmd/mscheduler", "testing"), "must not carry a test kit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			breaches := c.check(c.tree)
			require.Len(t, breaches, 1)
			require.Contains(t, breaches[0], c.says)
		})
	}
}

func TestAPlantedChainOfImportsIsFound(t *testing.T) {
	tr := plant("consumer", module+"/internal/store")
	tr.packages[module+"/internal/store"] = pkg{Imports: []string{"go.etcd.io/bbolt"}}
	require.Equal(t, []string{"consumer imports internal/store imports go.etcd.io/bbolt: a service that embeds mscheduler must not carry it"}, reaching(tr))
	require.Len(t, foreign(tr), 1)
}

func TestAPackageWithoutACommentIsFound(t *testing.T) {
	tr := plant("model")
	require.Empty(t, undocumented(tr))
	tr.packages[module+"/model"] = pkg{ImportPath: module + "/model"}
	require.Equal(t, []string{"model has no package comment: say in doc.go what lives there and what does not"}, undocumented(tr))
}

func TestAPlantedInternalTypeIsFound(t *testing.T) {
	text := "package producer\nimport \"" + module + "/internal/clock\"\ntype Config struct { Clock clock.Clock; own clock.Clock }\nfunc open(clock.Clock)\nfunc (*Config) Set(c clock.Clock) {}"
	require.Equal(t, []string{
		"producer/x.go: Config shows clock.Clock", "producer/x.go: Config.Set shows clock.Clock",
	}, leaks(tree{files: []source{parsed(t, "producer/x.go", text)}}))
}

func TestAFunctionWithoutAnExampleIsFound(t *testing.T) {
	text := "package producer\nfunc Send() {\n}\nfunc Key() {\n}\nfunc Short() {}\nfunc (e *E) Error() {\n}\nfunc (p *hidden) Own() {\n}"
	tr := tree{files: []source{
		parsed(t, "producer/x.go", text),
		parsed(t, "producer/example_test.go", "package producer_test\nfunc Example() { producer.Send() }"),
		parsed(t, "producer/x_test.go", "package producer_test\nfunc TestKey() { producer.Key() }"),
	}}
	require.Equal(t, []string{"producer/x.go:4: no example of producer uses Key"}, unexemplified(tr))
}

func parsed(t *testing.T, path, text string) source {
	t.Helper()
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, path, text, 0)
	require.NoError(t, err)
	return source{path: path, test: strings.HasSuffix(path, "_test.go"), syntax: syntax, set: set}
}
