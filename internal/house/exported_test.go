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

// mostExported bounds the exported names of the packages that users import. Flows, plans, metrics and
// the server have bounds of their own.
var mostExported = map[string]int{"flow": 65, "plan": 37, "metrics": 4, "server": 8, "all others": 330}

func TestThePublicAPIStaysSmall(t *testing.T) {
	n := map[string]int{}
	for _, f := range public(load(t)) {
		part := "all others"
		for _, apart := range []string{"flow", "plan", "metrics", "server"} {
			if within(f.room(), []string{apart + "/..."}) {
				part = apart
			}
		}
		n[part] += len(exported(f))
	}
	for part, most := range mostExported {
		if n[part] > most {
			t.Errorf("users may call %d names of %s; want at most %d: what only we call belongs to internal", n[part], part, most)
		}
	}
}

func TestNothingExportedShowsAnInternalType(t *testing.T) { report(t, leaks(load(t))) }

// public are the files of the packages that users import.
func public(tr tree) (files []source) {
	for _, f := range tr.files {
		if !f.test && within(f.room(), append(slices.Clone(libraries), "mstest", "metrics", "server")) {
			files = append(files, f)
		}
	}
	return files
}

// exported are the file's names that users may call: functions, types, constants, variables and
// methods of exported types, each with what its declaration says of types.
func exported(f source) map[string]ast.Node {
	names := map[string]ast.Node{}
	for _, decl := range f.syntax.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			of := ""
			if d.Recv != nil {
				of = receiver(d.Recv.List[0].Type)
			}
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(of)) {
				names[of+"."+d.Name.Name] = d.Type
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						names[s.Name.Name] = s.Type
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							names[name.Name] = s.Type
						}
					}
				}
			}
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// leaks finds exported names whose declarations name a type of an internal package.
func leaks(tr tree) (breaches []string) {
	for _, f := range public(tr) {
		hidden := map[string]bool{}
		for _, spec := range f.syntax.Imports {
			if p, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(p, module+"/internal/") {
				hidden[path.Base(p)] = true
			}
		}
		for name, said := range exported(f) {
			if s, ok := said.(*ast.StructType); ok {
				said = shown(s)
			}
			if said == nil {
				continue
			}
			ast.Inspect(said, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if id, ok := sel.X.(*ast.Ident); ok && hidden[id.Name] {
						breaches = append(breaches, fmt.Sprintf("%s: %s shows %s.%s", f.path, name, id.Name, sel.Sel.Name))
					}
				}
				return true
			})
		}
	}
	slices.Sort(breaches)
	return breaches
}

// shown is the struct with what users see of it: its exported and its embedded fields.
func shown(s *ast.StructType) *ast.FieldList {
	out := &ast.FieldList{}
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			out.List = append(out.List, field)
		}
	}
	return out
}
