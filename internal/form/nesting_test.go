package form

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func numbered(count int, name string) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, name, i)
	}
	return b.String()
}

// The parser has no bounds: what is nested in a text of 200 kB would take 15 GB, and what is merged a hundred times more
// than is written. A text of 1 MB would take minutes if it had one name in each line, or one document.
func TestASmallTextThatWouldNeedMuchMemoryIsRefusedBeforeItIsRead(t *testing.T) {
	const n = 100_000
	for name, text := range map[string]string{
		"lists":           strings.Repeat("[", n) + strings.Repeat("]", n),
		"objects":         strings.Repeat("{a: ", n) + "1" + strings.Repeat("}", n),
		"lists in blocks": strings.Repeat("- ", n) + "x",
		"names":           strings.Repeat("a: ", n) + "x",
		"marked names":    strings.Repeat("? ", n) + "x",
		"colons":          "[" + strings.Repeat("a: ", n) + "x]",
		"tags":            "[" + strings.Repeat("!a ", n) + "x]",
		"anchors":         "[" + strings.Repeat("&a ", n) + "x]",
		"steps": func() string {
			var b strings.Builder
			for i := range 1000 {
				b.WriteString(strings.Repeat(" ", i) + "a:\n")
			}
			return b.String()
		}(),
		"merged":         "- &a {" + numbered(500, "k%d: 0, ") + "}\n" + strings.Repeat("- <<: *a\n", n),
		"lines":          numbered(n, "k%d: 0\n"),
		"inner lines":    "a:\n" + numbered(n, " - x: 0\n   k%d:\n") + " -\n" + numbered(n, "   \"k%d\": {a: 0}\n"),
		"marked lines":   numbered(n, "? k%d\n: 0\n"),
		"tagged lines":   numbered(n, "!!str k%d: 0\n"),
		"anchored lines": numbered(n, "&a k%d: 0\n"),
		"documents":      strings.Repeat("a: 1\n---\n", n),
		"ends":           strings.Repeat("a: 1\n...\n", n),
	} {
		_, err := JSONOfYAML([]byte(text))
		want := "nested too deeply"
		switch name {
		case "merged":
			want = "merges more than 100000 fields"
		case "lines", "inner lines", "marked lines", "tagged lines", "anchored lines":
			want = "a block has more than 2000 names; write them between { and }"
		case "documents", "ends":
			want = "another document begins here; want one"
		}
		require.ErrorContains(t, err, want, name)
	}
}

func TestWhatIsNestedAsDeeplyAsAllowedIsRead(t *testing.T) {
	const n = maxDepth - 4
	for name, text := range map[string]string{
		"lists":   strings.Repeat("[", n) + strings.Repeat("]", n),
		"objects": strings.Repeat(`{"a": `, n) + "1" + strings.Repeat("}", n),
		"blocks": func() string {
			var b strings.Builder
			for i := range n {
				b.WriteString(strings.Repeat(" ", i) + "- b: [1, {c: 2, d: 3}, 4]\n" + strings.Repeat(" ", i) + "-\n")
			}
			return b.String()
		}(),
		"wide":       "a: [" + strings.Repeat("{a: 1, b: [2, 3]}, ", 5000) + "{}]",
		"many names": strings.Repeat("- a: 1\n  b: 2\n", 5000) + "- {" + numbered(5000, "k%d: 0, ") + "}\n" + "- a\n- " + strings.TrimPrefix(numbered(maxNames, "  k%d: 0\n"), "  "),
	} {
		_, err := JSONOfYAML([]byte(text))
		require.NoError(t, err, name)
	}
}
