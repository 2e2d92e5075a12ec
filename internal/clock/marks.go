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

// Add notes an event.
func (m *Marks) Add(size time.Duration, at Instant) {
	m.list = slices.DeleteFunc(m.list, func(k mark) bool { return k.size <= size })
	m.list = append(m.list, mark{size: size, at: at})
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
