package access

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// An address may fail failuresAllowed times at once. Each failure is forgiven after failureForgiven,
// one after the other.
const (
	failuresAllowed = 20
	failureForgiven = 6 * time.Second
)

// limiter bounds the failed sign-ins of each address. Its memory is bounded: beyond maxKept addresses it
// forgets some.
type limiter struct {
	clock clock.Clock

	mu sync.Mutex
	// clear is when all failures of an address will be forgiven, by the monotonic clock.
	clear map[string]time.Duration
}

func newLimiter(c clock.Clock) *limiter {
	return &limiter{clock: c, clear: map[string]time.Duration{}}
}

// wait is how long the address must wait before it may fail again; at most zero = it need not.
func (l *limiter) wait(address string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clear[address] - l.clock.Monotonic() - (failuresAllowed-1)*failureForgiven
}

// failed notes a failure of the address.
func (l *limiter) failed(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	put(l.clear, address, max(l.clear[address], l.clock.Monotonic())+failureForgiven)
}

// address is what the limiter counts for: the IP address of "ip", "[ip]" or "ip:port", and of IPv6 the first 64
// bits, which one customer has. What is neither counts as it is.
func address(from string) string {
	ip, err := netip.ParseAddr(strings.Trim(from, "[]"))
	if err != nil {
		both, err := netip.ParseAddrPort(from)
		if err != nil {
			return from[:min(len(from), 64)]
		}
		ip = both.Addr()
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}

// maxKept bounds each map of this package.
const maxKept = 10_000

// put sets a value in a map of bounded size. A full one forgets any other key: nobody can choose which.
func put[V any](m map[string]V, key string, v V) {
	if _, known := m[key]; !known && len(m) >= maxKept {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = v
}
