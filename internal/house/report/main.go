// Command report makes the output of `go test -json` short without hiding anything:
//
//	go test -json ./... | go run ./internal/house/report
//
// Of a test that fails it prints everything; of one that passes only what it logged, such
// as how many answers were compared; of skipped ones each reason with its count, so that
// no engine is left out silently; the closing line of each package; which tests took longest;
// and at the end again the name of each test that failed or did not end. It ends with 1 when
// something failed, or when nothing ran at all.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if !report(os.Stdin, os.Stdout) {
		os.Exit(1)
	}
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	// ImportPath is the package of a build.
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64 // seconds, without the time that a parallel test waited for its turn
}

type reporter struct {
	out                     io.Writer
	lines                   map[[2]string][]string // by package and test, while it runs
	running                 map[[2]string]bool     // by package and test
	skips                   map[string]int         // by reason
	longest                 []event                // that passed or failed
	bad                     []string               // what failed, for the end of the report
	passed, failed, skipped int
	unfinished, packages    int
}

// report reads events and writes what a person wants to see; false when something failed.
func report(in io.Reader, out io.Writer) bool {
	r := &reporter{out: out, lines: map[[2]string][]string{}, running: map[[2]string]bool{}, skips: map[string]int{}}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		var e event
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil || e.Action == "" {
			r.print(scan.Text()) // of the go command itself
			continue
		}
		r.take(e)
	}
	if err := scan.Err(); err != nil {
		r.print("reading the events: " + err.Error())
		r.bad = append(r.bad, "the report")
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
		r.print(fmt.Sprintf("SKIPPED %d: %s", r.skips[reason], reason))
	}
	r.printLongest()
	for _, what := range r.bad {
		r.print("FAILED " + what)
	}
	r.print(fmt.Sprintf("%d passed, %d failed, %d unfinished, %d skipped", r.passed, r.failed, r.unfinished, r.skipped))
	return len(r.bad) == 0 && r.packages > 0
}

func (r *reporter) print(line string) {
	_, _ = fmt.Fprintln(r.out, line) // a pipe that is gone ends the process by itself
}

const (
	mostLongest  = 20
	leastLongest = 5.0 // seconds: quicker ones do not matter
)

// printLongest names the tests that took longest. Of a test and its parts it names the one that took
// the time.
func (r *reporter) printLongest() {
	slices.SortStableFunc(r.longest, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range r.longest[:min(len(r.longest), mostLongest)] {
		r.print(fmt.Sprintf("LONG %5.1fs  %s  %s", e.Elapsed, path.Base(e.Package), e.Test))
	}
}

func (r *reporter) timed(e event) {
	partOfIt := func(o event) bool {
		return o.Package == e.Package && strings.HasPrefix(o.Test, e.Test+"/") && 2*o.Elapsed > e.Elapsed
	}
	if e.Elapsed >= leastLongest && !slices.ContainsFunc(r.longest, partOfIt) {
		r.longest = append(r.longest, e)
	}
}

func (r *reporter) take(e event) {
	if e.Test != "" && (e.Action == "pass" || e.Action == "fail") {
		r.timed(e)
	}
	key := [2]string{e.Package, e.Test}
	line := strings.TrimSuffix(e.Output, "\n")
	switch e.Action {
	case "run":
		r.running[key] = true
		return
	case "pass", "fail", "skip":
		delete(r.running, key)
	}
	switch {
	case e.Action == "build-output":
		r.print(line)
	case e.Action == "build-fail":
		r.bad = append(r.bad, "the build of "+e.ImportPath)
	case e.Action == "output" && e.Test == "":
		if line != "PASS" && line != "" && !strings.HasSuffix(line, "[no test files]") {
			r.print(line)
		}
	case e.Action == "output":
		if !progress.MatchString(line) {
			r.lines[key] = append(r.lines[key], line)
		}
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		r.endPackage(e)
	case e.Action == "pass":
		r.passed++
		for _, text := range logged(r.lines[key]) {
			r.print("  " + e.Test + ": " + text)
		}
		delete(r.lines, key)
	case e.Action == "skip":
		r.skipped++
		r.skips[strings.Join(logged(r.lines[key]), "; ")]++
		delete(r.lines, key)
	case e.Action == "fail":
		r.failed++
		r.bad = append(r.bad, e.Package+" "+e.Test)
		r.dump(key)
	}
}

// endPackage also names the tests that never ended, because of a panic or a time limit, and tells what they said.
func (r *reporter) endPackage(e event) {
	r.packages++
	if e.Action != "fail" {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.running), func(a, b [2]string) int { return strings.Compare(a[1], b[1]) }) {
		if key[0] == e.Package {
			r.unfinished++
			r.print("UNFINISHED " + key[1])
			r.bad = append(r.bad, e.Package+" "+key[1]+", which did not end")
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.lines), func(a, b [2]string) int { return strings.Compare(a[1], b[1]) }) {
		if key[0] == e.Package {
			r.dump(key)
		}
	}
	if !slices.ContainsFunc(r.bad, func(what string) bool { return strings.HasPrefix(what, e.Package+" ") }) {
		r.bad = append(r.bad, e.Package)
	}
}

func (r *reporter) dump(key [2]string) {
	for _, line := range r.lines[key] {
		r.print(line)
	}
	delete(r.lines, key)
}

var (
	progress = regexp.MustCompile(`^\s*=== (RUN|PAUSE|CONT|NAME) `)
	logLine  = regexp.MustCompile(`^\s+\S+\.go:\d+: (.+)$`)
	// What rapid and datadriven log of every run that went well says nothing.
	routine = regexp.MustCompile(`^(\[rapid\] OK, |$)`)
)

// logged are the texts that a test logged, of each its first line.
func logged(lines []string) (texts []string) {
	for _, line := range lines {
		if m := logLine.FindStringSubmatch(line); m != nil && !routine.MatchString(strings.TrimSpace(m[1])) {
			texts = append(texts, strings.TrimSpace(m[1]))
		}
	}
	return texts
}
