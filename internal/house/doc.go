// Package house holds the rules of the house as tests: which package may import which,
// who may read the clock, the environment and signals, and that every package says what
// it is for.
//
// There is nothing to import here. The rules are tables in rules_test.go; a new package
// is given its place there, in one line. The checks are in imports_test.go and
// sources_test.go, and breaches_test.go shows that each of them bites.
package house
