package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree is everything the rules look at: what the go command says of the packages, and
// the files themselves, whatever system they are built for.
type tree struct {
	packages map[string]pkg // by import path; ours and all that they reach
	files    []source
}

// pkg is one package as `go list -json` describes it.
type pkg struct {
	ImportPath   string
	Dir          string
	Doc          string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
	Error        *struct{ Err string }
}

// source is one Go file.
type source struct {
	path   string // relative to the module's root, with slashes
	test   bool
	syntax *ast.File
	set    *token.FileSet
}

// room is the directory of the file: the package it belongs to.
func (s source) room() string { return path.Dir(s.path) }

// own cuts the module's path off; ok says whether the package is ours.
func own(importPath string) (rel string, ok bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// within says whether the path is one of the places; "a/..." is a and all below it.
func within(p string, places []string) bool {
	for _, place := range places {
		below, subtree := strings.CutSuffix(place, "/...")
		if p == place || subtree && (p == below || strings.HasPrefix(p, below+"/")) {
			return true
		}
	}
	return false
}

// load reads the tree once for all tests.
func load(t *testing.T) tree {
	t.Helper()
	loading.Do(func() { loaded = readTree(t) })
	require.NotEmpty(t, loaded.packages, "the tree could not be read: see the first test")
	return loaded
}

var (
	loading sync.Once
	loaded  tree
)

func readTree(t *testing.T) tree {
	t.Helper()
	root := strings.TrimSpace(run(t, ".", "list", "-m", "-f", "{{.Dir}}"))
	tr := tree{packages: map[string]pkg{}}
	out := run(t, root, "list", "-e", "-deps",
		"-json=ImportPath,Dir,Doc,Standard,Imports,TestImports,XTestImports,GoFiles,Error", "./...")
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		tr.packages[p.ImportPath] = p
	}
	require.Contains(t, tr.packages, module+"/model", "go list found none of our packages")

	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tr.files = append(tr.files, source{path: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"), syntax: file, set: set})
		return nil
	}))
	return tr
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), stderr.String())
	return string(out)
}
