package form

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parser has no bounds: what is nested in a text of 200 kB would take 15 GB, and what is merged a hundred times more
// than is written.
func TestASmallTextThatWouldNeedMuchMemoryIsRefusedBeforeItIsRead(t *testing.T) {
	const n = 100_000
	var members strings.Builder
	for i := range 500 {
		fmt.Fprintf(&members, "k%d: 0, ", i)
	}
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
		"merged": "- &a {" + members.String() + "}\n" + strings.Repeat("- <<: *a\n", n),
	} {
		_, err := JSONOfYAML([]byte(text))
		want := "nested too deeply"
		if name == "merged" {
			want = "merges more than 100000 fields"
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
		"wide": "a: [" + strings.Repeat("{a: 1, b: [2, 3]}, ", 5000) + "{}]",
	} {
		_, err := JSONOfYAML([]byte(text))
		require.NoError(t, err, name)
	}
}
