package clock

import (
	"slices"
	"time"
)

// Marks remember when events of a certain size last happened. A later event of the same
// size or more replaces an earlier one, so what is kept are the sizes that only an earlier
// event had. The zero value has no events. Marks are not safe for concurrent use.
type Marks struct {
	list []mark // the earliest first; each is smaller than the one before
}

type mark struct {
	size time.Duration
	at   Instant
}

// maxMarks bounds the memory; sizes that shrink so often are rare.
const maxMarks = 32

// Add notes an event. It may be earlier than others that were noted.
func (m *Marks) Add(size time.Duration, at Instant) {
	n := len(m.list)
	for n > 0 && m.list[n-1].at.mono > at.mono {
		n--
	}
	earlier, later := m.list[:n:n], m.list[n:]
	if len(later) > 0 && later[0].size >= size {
		return
	}
	earlier = slices.DeleteFunc(slices.Clone(earlier), func(k mark) bool { return k.size <= size })
	m.list = slices.Concat(earlier, []mark{{size: size, at: at}}, later)
	if len(m.list) > maxMarks { // as if the larger one had happened later
		m.list[1].size = m.list[0].size
		m.list = slices.Delete(m.list, 0, 1)
	}
}

// Last is when an event larger than the size last happened; false when none did.
func (m *Marks) Last(over time.Duration) (at Instant, ok bool) {
	for _, k := range slices.Backward(m.list) {
		if k.size > over {
			return k.at, true
		}
	}
	return Instant{}, false
}
