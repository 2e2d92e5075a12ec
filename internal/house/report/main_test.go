package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func reported(events string) (string, bool) {
	var out strings.Builder
	ok := report(strings.NewReader(events), &out)
	return out.String(), ok
}

const good = `{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Output":"engine embedded\n"}
{"Action":"run","Package":"m/a","Test":"TestReplay"}
{"Action":"output","Package":"m/a","Test":"TestReplay","Output":"=== RUN   TestReplay\n"}
{"Action":"output","Package":"m/a","Test":"TestReplay","Output":"    replay_test.go:58: 5000 answers: 99 % the same\n"}
{"Action":"output","Package":"m/a","Test":"TestReplay","Output":"    props_test.go:1: [rapid] OK, passed 100 tests (1ms)\n"}
{"Action":"output","Package":"m/a","Test":"TestReplay","Output":"--- PASS: TestReplay (0.10s)\n"}
{"Action":"pass","Package":"m/a","Test":"TestReplay","Elapsed":0.1}
{"Action":"output","Package":"m/a","Test":"TestX/mongod","Output":"    engines_test.go:81: mongod: not on PATH\n"}
{"Action":"skip","Package":"m/a","Test":"TestX/mongod"}
{"Action":"output","Package":"m/a","Test":"TestY/mongod","Output":"    engines_test.go:81: mongod: not on PATH\n"}
{"Action":"skip","Package":"m/a","Test":"TestY/mongod"}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.2s\n"}
{"Action":"pass","Package":"m/a","Elapsed":0.2}
{"Action":"output","Package":"m/b","Output":"?   \tm/b\t[no test files]\n"}
{"Action":"skip","Package":"m/b"}
`

func TestWhatPassesIsShortAndNoSkipIsSilent(t *testing.T) {
	out, ok := reported(good)
	require.True(t, ok)
	require.Equal(t, `engine embedded
  TestReplay: 5000 answers: 99 % the same
ok  	m/a	0.2s
SKIPPED 2: mongod: not on PATH
1 passed, 0 failed, 0 unfinished, 2 skipped
`, out)
}

func TestWhatFailsIsToldInFull(t *testing.T) {
	out, ok := reported(good + `{"Action":"output","Package":"m/c","Test":"TestZ","Output":"=== RUN   TestZ\n"}
{"Action":"output","Package":"m/c","Test":"TestZ","Output":"    z_test.go:3: expected 1\n"}
{"Action":"output","Package":"m/c","Test":"TestZ","Output":"        and more\n"}
{"Action":"output","Package":"m/c","Test":"TestZ","Output":"--- FAIL: TestZ (0.10s)\n"}
{"Action":"fail","Package":"m/c","Test":"TestZ"}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c\t0.2s\n"}
{"Action":"fail","Package":"m/c"}
`)
	require.False(t, ok)
	require.Contains(t, out, "    z_test.go:3: expected 1\n        and more\n--- FAIL: TestZ (0.10s)\nFAIL\tm/c\t0.2s\n")
	require.Contains(t, out, "FAILED m/c TestZ\n1 passed, 1 failed, 0 unfinished, 2 skipped\n")
}

func TestTheLongestTestsAreNamedAndNotTheirParents(t *testing.T) {
	out, ok := reported(good + `{"Action":"pass","Package":"m/a","Test":"TestQuick","Elapsed":4.9}
{"Action":"pass","Package":"m/a","Test":"TestLong/one","Elapsed":31.25}
{"Action":"pass","Package":"m/a","Test":"TestLong","Elapsed":31.3}
{"Action":"pass","Package":"m/b","Test":"TestOfParts/one","Elapsed":6}
{"Action":"pass","Package":"m/b","Test":"TestOfParts","Elapsed":40}
{"Action":"pass","Package":"m/b","Elapsed":100}
`)
	require.True(t, ok)
	require.Contains(t, out, `LONG  40.0s  b  TestOfParts
LONG  31.2s  a  TestLong/one
LONG   6.0s  b  TestOfParts/one
`)
	require.NotContains(t, out, "TestQuick")
}

func TestATestThatNeverEndsIsTold(t *testing.T) {
	out, ok := reported(`{"Action":"run","Package":"m/c","Test":"TestY"}
{"Action":"pass","Package":"m/c","Test":"TestY"}
{"Action":"run","Package":"m/c","Test":"TestZ"}
{"Action":"output","Package":"m/c","Test":"TestZ","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"m/c"}
`)
	require.False(t, ok)
	require.Contains(t, out, "panic: test timed out\n")
	require.Contains(t, out, "UNFINISHED TestZ\n")
	require.Contains(t, out, "FAILED m/c TestZ, which did not end\n1 passed, 0 failed, 1 unfinished, 0 skipped\n")
	require.NotContains(t, out, "UNFINISHED TestY")
}

func TestABuildThatFailsAndARunOfNothingAreFailures(t *testing.T) {
	out, ok := reported(good + `{"ImportPath":"m/d","Action":"build-output","Output":"d.go:1: undefined: x\n"}
{"ImportPath":"m/d","Action":"build-fail"}
`)
	require.False(t, ok)
	require.Contains(t, out, "d.go:1: undefined: x\n")
	require.Contains(t, out, "FAILED the build of m/d\n")

	out, ok = reported("go: no such package\n")
	require.False(t, ok)
	require.Contains(t, out, "go: no such package\n")
}
