package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What is wrong with a file of types or rules, in a user's words: those of the YAML reader
// name the types of this code.

// mistake is the error for a file that cannot be read.
func (f fileOf[T]) mistake(name string, err error) error {
	var bad *yaml.TypeError
	if !errors.As(err, &bad) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "did not find expected alphabetic") || strings.Contains(text, "cannot start any token") {
			text += `; quote a value that begins with * or @, such as cron: "* * * * *"`
		}
		return usage("%s: %s", name, text)
	}
	lines := make([]string, len(bad.Errors))
	for i, e := range bad.Errors {
		lines[i] = name + ": " + f.inWords(e)
	}
	return usage("%s", strings.Join(lines, "\n"))
}

func (f fileOf[T]) inWords(e string) string {
	if m := unfit.FindStringSubmatch(e); m != nil {
		return f.unfit(m[1], m[2], m[3], m[4])
	}
	field, in, unknown := strings.Cut(e, " not found in type cli.")
	switch {
	case unknown && in == f.spec:
		e = field + " is not a field of " + f.thing
		if ours := f.instead[field[strings.LastIndexByte(field, ' ')+1:]]; ours != "" {
			e += "; here it is called " + ours
		}
	case unknown:
		e = field + " is not a field there"
		if in == "optionsYAML" && strings.HasSuffix(field, " expires_at") {
			e += ": one time for all ticks would cancel those after it; end_at ends the rule"
		}
	}
	return e
}

// unfit is what the YAML reader says of a value that is not of its field's kind: where it is,
// its tag, its beginning if it is one, and the Go type of the field.
var unfit = regexp.MustCompile("(?s)^(line \\d+): cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.+)$")

func (f fileOf[T]) unfit(line, tag, value, goType string) string {
	is := map[string]string{
		"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "timestamp": "a date",
	}[tag]
	if is == "" {
		is = "a value of the kind " + tag
	}
	want := "fields of its own"
	if names := f.fieldsOf(goType); names != "" {
		want += ": " + names
	}
	switch {
	case goType == "cli."+f.spec:
		want = "the fields of " + f.thing
	case goType == "string":
		want = "text"
	case goType == "bool":
		want = "true or false"
	case strings.HasPrefix(goType, "int"):
		want = "a whole number"
	case strings.HasPrefix(goType, "float"):
		want = "a number"
	case goType == "map[string]string":
		want = "names with their texts, as {name: text}"
	case strings.HasPrefix(goType, "[]"):
		want = "a list"
	}
	switch tag {
	case "map":
		return fmt.Sprintf("%s: there are fields; want %s", line, want)
	case "seq":
		return fmt.Sprintf("%s: there is a list; want %s", line, want)
	}
	return fmt.Sprintf("%s: %q is %s; want %s", line, value, is, want)
}

// freeFields hold values of the user's own, in which nothing is a value, too.
var freeFields = map[string]bool{"args": true, "ext": true, "body": true}

// withoutValue finds fields with nothing behind them, which would silently not be said: who writes
// rate_limit: means to have one.
func withoutValue(n *yaml.Node) (mistakes []string) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 || freeFields[n.Content[i-1].Value] {
				continue
			}
			if child.Kind == yaml.ScalarNode && child.Tag == "!!null" {
				mistakes = append(mistakes, fmt.Sprintf("line %d: %s has no value; give it one, or leave it out", n.Content[i-1].Line, n.Content[i-1].Value))
			}
		}
		mistakes = append(mistakes, withoutValue(child)...)
	}
	return mistakes
}
