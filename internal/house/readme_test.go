package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/cli"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// goBlock is Go code in a page, with the comment before it that names its file.
var goBlock = regexp.MustCompile("(?s)(?:<!-- (\\S+) -->\n)?```go\n(.*?)```")

// Code that is shown must compile: it is a verbatim part of a file that does, or, in the
// tutorial, all of it.
func TestGoCodeInThePagesIsThatOfTheExamples(t *testing.T) {
	root := strings.TrimSpace(run(t, ".", "list", "-m", "-f", "{{.Dir}}"))
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	shown := map[string]int{}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
			file, code := m[1], m[2]
			name := filepath.Base(page)
			if file == "" {
				t.Errorf("%s: this block does not say whose code it is, with <!-- FILE --> before it:\n%s", name, code)
				continue
			}
			source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
			require.NoError(t, err, name)
			if !strings.Contains(string(source), code) || name == "tutorial.md" && string(source) != code {
				t.Errorf("%s: this is no longer the code of %s:\n%s", name, file, code)
			}
			shown[name]++
		}
	}
	require.GreaterOrEqual(t, shown["README.md"], 3, "the README shows a sender, a handler and a test")
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:"\s]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksInThePagesLeadSomewhere(t *testing.T) {
	root := strings.TrimSpace(run(t, ".", "list", "-m", "-f", "{{.Dir}}"))
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(m[1]))
			}
			to, err := os.ReadFile(target)
			if err != nil || m[2] != "" && !slices.Contains(anchors(string(to)), m[2]) {
				t.Errorf("%s links to %s#%s, which is not there", filepath.Base(page), m[1], m[2])
			}
		}
	}
}

// anchors are the headings of a page, as links name them.
func anchors(page string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		names = append(names, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return names
}

var named = regexp.MustCompile("`((?:[a-z]+/)+[a-z]+(?:_[a-z]+)*\\.go)`")

func TestTheArchitectureNamesEveryPackageAndFilesThatExist(t *testing.T) {
	root := strings.TrimSpace(run(t, ".", "list", "-m", "-f", "{{.Dir}}"))
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	page := string(text)
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(m[1]))); err != nil {
			t.Errorf("docs/architecture.md names %s, which is not there", m[1])
		}
	}
	for p := range load(t).packages {
		ours, ok := own(p)
		if !ok || within(ours, []string{"cmd/...", "docs/...", "internal/embedded/...", "internal/mql/...", "internal/house/..."}) {
			continue
		}
		if !strings.Contains(page, "`"+ours+"`") {
			t.Errorf("docs/architecture.md does not say what the package %s is", ours)
		}
	}
}

func reference(t *testing.T) string {
	t.Helper()
	root := strings.TrimSpace(run(t, ".", "list", "-m", "-f", "{{.Dir}}"))
	text, err := os.ReadFile(filepath.Join(root, "docs", "reference.md"))
	require.NoError(t, err)
	return string(text)
}

func TestEveryLogLineIsExplained(t *testing.T) {
	page, lines := reference(t), 0
	for _, f := range load(t).files {
		if f.test || !within(f.room(), told) || within(f.room(), testKits) {
			continue
		}
		for _, text := range logLines(f) {
			lines++
			if !strings.Contains(page, "`"+text+"`") {
				t.Errorf("%s logs %q, which docs/reference.md does not explain (Log lines)", f.path, text)
			}
		}
	}
	require.Greater(t, lines, 10, "the log lines were not found")
}

// logLines are the texts of Msg calls; of a text that is put together, its beginning.
func logLines(f source) (texts []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); !ok || sel.Sel.Name != "Msg" {
			return true
		}
		arg := call.Args[0]
		for {
			sum, ok := arg.(*ast.BinaryExpr)
			if !ok {
				break
			}
			arg = sum.X
		}
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}

func TestStatusesAndEventsAreInTheReference(t *testing.T) {
	page := reference(t)
	for _, status := range lifecycle.Statuses {
		require.Contains(t, page, "| `"+string(status)+"` |")
	}
	for _, kind := range codec.EventKinds {
		require.Contains(t, page, "| `"+string(kind)+"` |")
	}
}

func TestEveryVariableIsExplained(t *testing.T) {
	page := reference(t)
	env := reflect.TypeFor[cli.Environment]()
	for i := range env.NumField() {
		name := "MSCHEDULER_" + env.Field(i).Tag.Get("envconfig")
		require.Contains(t, page, "| `"+name+"` |")
	}
}
