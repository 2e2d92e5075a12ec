// Package scenario runs the readable tests of the rules: text files of commands, with what
// became of each under ----. It is for tests only; the rules and their words belong to the
// packages that are tested.
//
//	advance 10s
//	finish w ok result=7
//	----
//	Success due=- …
package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// Files runs testdata/*.txt, each from a state of its own: begin makes it and returns what
// carries a command out and says what came of it. With the flag -rewrite of the test binary
// the files are written anew.
func Files(t *testing.T, begin func() func(Command) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			do := begin()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string { return do(Command{T: t, d: d}) })
		})
	}
}

// Command is one command: a name, words, and values that are named (key=value, or
// key=(a,b)). What it lacks or gets wrong fails the test.
type Command struct {
	T *testing.T
	d *datadriven.TestData
}

// Name is what is to be done.
func (c Command) Name() string { return c.d.Cmd }

// Pos is where it stands, for messages.
func (c Command) Pos() string { return c.d.Pos }

// Input are the lines between the command and ----, without the white space around them.
func (c Command) Input() string { return strings.TrimSpace(c.d.Input) }

// Unknown fails the test: nobody knows the command, or what it says.
func (c Command) Unknown(what string) { c.T.Fatalf("%s: no %s", c.d.Pos, what) }

// Words are the arguments without a value.
func (c Command) Words() (words []string) {
	for _, arg := range c.d.CmdArgs {
		if len(arg.Vals) == 0 {
			words = append(words, arg.Key)
		}
	}
	return words
}

// Word is the i-th of the words, from 0.
func (c Command) Word(i int) string {
	words := c.Words()
	require.Greater(c.T, len(words), i, "%s needs word %d", c.d.Pos, i)
	return words[i]
}

// Keys are the names of all arguments, words included, in their order.
func (c Command) Keys() []string {
	keys := make([]string, len(c.d.CmdArgs))
	for i, arg := range c.d.CmdArgs {
		keys[i] = arg.Key
	}
	return keys
}

// Has says whether the word or named value is there.
func (c Command) Has(key string) bool { return slices.Contains(c.Keys(), key) }

// Values are the values of that name; nil = there are none.
func (c Command) Values(key string) []string {
	for _, arg := range c.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

// Value is the value of that name; "" = there is none.
func (c Command) Value(key string) string { return strings.Join(c.Values(key), ",") }

// Number is the value of that name as a number.
func (c Command) Number(key string) int {
	n, err := strconv.Atoi(c.Value(key))
	require.NoError(c.T, err, c.d.Pos)
	return n
}

// Duration reads a duration, which may begin with a +.
func (c Command) Duration(s string) time.Duration {
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	require.NoError(c.T, err, c.d.Pos)
	return d
}

// FindTest makes sure that the test exists that the argument test names, as package.TestX, and returns
// "found". It is for rules that another test shows.
func (c Command) FindTest() string {
	room, fn, _ := strings.Cut(c.Value("test"), ".")
	files, err := filepath.Glob(filepath.Join("../..", room, "*_test.go"))
	require.NoError(c.T, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(c.T, err)
		if strings.Contains(string(text), "func "+fn+"(t *testing.T)") {
			return "found"
		}
	}
	c.Unknown("test " + c.Value("test"))
	return ""
}
