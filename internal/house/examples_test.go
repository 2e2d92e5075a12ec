package house

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// doors are the packages by which services use mscheduler.
var doors = []string{"producer", "admin", "pull", "consumer", "periodic", "flow", "plan"}

func TestEachFunctionOfTheDoorsHasAnExample(t *testing.T) { report(t, unexemplified(load(t))) }

// unexemplified finds the exported functions and methods of the doors that the files with examples
// of their package do not use, but for those that are written in one line, and the methods of errors.
func unexemplified(tr tree) (breaches []string) {
	used := map[string]bool{} // with its package
	for _, f := range tr.files {
		if f.test && strings.HasPrefix(path.Base(f.path), "example") {
			for _, name := range selected(f) {
				used[f.room()+"."+name] = true
			}
		}
	}
	for _, f := range tr.files {
		if f.test || !slices.Contains(doors, f.room()) {
			continue
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || fn.Recv != nil && !ast.IsExported(receiver(fn.Recv.List[0].Type)) {
				continue
			}
			name, from, to := fn.Name.Name, f.set.Position(fn.Pos()), f.set.Position(fn.End())
			if from.Line == to.Line || name == "Error" || name == "Unwrap" || used[f.room()+"."+name] {
				continue
			}
			breaches = append(breaches, fmt.Sprintf("%s:%d: no example of %s uses %s", f.path, from.Line, f.room(), name))
		}
	}
	slices.Sort(breaches)
	return breaches
}

// selected are the names that the file takes from packages and values.
func selected(f source) (names []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			names = append(names, sel.Sel.Name)
		}
		return true
	})
	return names
}
