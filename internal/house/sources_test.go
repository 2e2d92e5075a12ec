package house

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestClockEnvironmentAndLogsHaveTheirPlaces(t *testing.T) { report(t, misplaced(load(t))) }

// misplaced finds what reserved names in files that may not have it.
func misplaced(tr tree) (breaches []string) {
	for _, f := range tr.files {
		if f.test || within(f.room(), testKits) {
			continue
		}
		for name, line := range uses(f) {
			for _, rule := range reserved {
				if slices.Contains(rule.names, name) && !within(f.room(), rule.places) {
					breaches = append(breaches, fmt.Sprintf("%s:%d uses %s: %s", f.path, line, name, rule.why))
				}
			}
		}
	}
	slices.Sort(breaches)
	return breaches
}

// uses gives what the file imports and what it takes from those packages, each with the
// line of its first use. A package imported under another name is seen through; a dot
// import counts as a use of everything in it.
func uses(f source) map[string]int {
	found := map[string]int{}
	note := func(name string, at ast.Node) {
		if _, ok := found[name]; !ok {
			found[name] = f.set.Position(at.Pos()).Line
		}
	}
	local := map[string]string{}
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		note(p, spec)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = p
		if name != "." {
			continue
		}
		for _, rule := range reserved {
			for _, n := range rule.names {
				if strings.HasPrefix(n, p+".") {
					note(n, spec)
				}
			}
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				if p, ok := local[id.Name]; ok {
					note(p+"."+sel.Sel.Name, sel)
				}
			}
		}
		return true
	})
	return found
}
