// Package house holds the rules of the house as tests: which package may import which, what a chain
// of imports must not reach, and that every package says what it is for. Rules that a linter
// knows, such as who may read the clock, are in .golangci.yml.
//
// There is nothing to import here. The rules are tables in rules_test.go; a new package
// is given its place there, in one line. The checks are in imports_test.go, and
// breaches_test.go shows that each of them bites.
package house
