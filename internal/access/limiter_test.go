package access

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFailuresCountForAnAddressAndNotForItsPortsAndNeighbours(t *testing.T) {
	for _, same := range [][]string{
		{"192.0.2.1", "192.0.2.1:1", "192.0.2.1:65535", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:9"},
		{"2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:9", "2001:db8:0:0:ffff::", "[2001:db8::2%eth0]:9"},
		{"192.0.2.2"}, {"2001:db8:0:1::1"}, {""}, {"pipe"},
		{strings.Repeat("x", 1000), strings.Repeat("x", 999)},
	} {
		for _, a := range same {
			require.Equal(t, address(same[0]), address(a), a)
			require.LessOrEqual(t, len(address(a)), 70)
		}
	}
	require.NotEqual(t, address("192.0.2.1"), address("192.0.2.2"))
	require.NotEqual(t, address("2001:db8::1"), address("2001:db8:0:1::1"))
}

// The specification: within any time t, an address fails at most as often as is allowed at once and as
// is forgiven in t, and it never waits longer than until the next failure is forgiven.
func TestAnAddressFailsAsOftenAsIsForgiven(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := &hand{}
		l := newLimiter(c)
		var failed []time.Duration
		for range rapid.IntRange(0, 200).Draw(r, "tries") {
			c.forward(time.Duration(rapid.IntRange(0, 8000).Draw(r, "pause")) * time.Millisecond)
			require.LessOrEqual(r, l.wait("other"), time.Duration(0))
			wait := l.wait("a")
			require.LessOrEqual(r, wait, failureForgiven)
			if wait > 0 {
				if rapid.Bool().Draw(r, "waits") {
					c.forward(wait - 1)
					require.Equal(r, time.Duration(1), l.wait("a"))
					c.forward(1)
					require.LessOrEqual(r, l.wait("a"), time.Duration(0))
				}
				continue
			}
			l.failed("a")
			failed = append(failed, c.Monotonic())
		}
		for i := range failed {
			for j := i; j < len(failed); j++ {
				require.LessOrEqual(r, j-i+1, failuresAllowed+int((failed[j]-failed[i])/failureForgiven))
			}
		}
	})
}
