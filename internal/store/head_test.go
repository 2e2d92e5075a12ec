package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// at is a time of the database so many milliseconds after a fixed one.
func at(ms int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(ms)).UTC() }

func newHead() *head { return &head{every: 5 * time.Second, margin: time.Second} }

func TestTheFirstLookHasNoBound(t *testing.T) {
	h := newHead()
	l := h.begin(at(0), time.Minute)
	assert.True(t, l.unbounded())
	assert.True(t, h.begin(at(10), time.Minute).unbounded(), "a look that failed says nothing of the head")
}

func TestALookStartsAMarginBeforeTheEarliestKeySeen(t *testing.T) {
	h := newHead()
	h.end(h.begin(at(10_000), time.Minute), at(3_000))
	l := h.begin(at(10_100), time.Minute+100*time.Millisecond)
	assert.Equal(t, at(2_000), l.from)
	h.end(l, at(9_000))
	assert.Equal(t, at(8_000), h.begin(at(10_200), time.Minute+200*time.Millisecond).from)
}

// A task with a short lease may be claimed after one with a long lease was seen: its key is
// earlier, but not earlier than the look.
func TestTheHeadIsNeverLaterThanTheLook(t *testing.T) {
	for name, first := range map[string]time.Time{"a later key": at(70_000), "no key": {}} {
		h := newHead()
		h.end(h.begin(at(10_000), time.Minute), first)
		assert.Equal(t, at(9_000), h.begin(at(12_000), time.Minute+2*time.Second).from, name)
	}
}

func TestALookWithoutABoundIsDueEveryFewSeconds(t *testing.T) {
	h := newHead()
	h.end(h.begin(at(0), time.Minute), time.Time{})
	for _, ms := range []int{100, 2_000, 4_999} {
		l := h.begin(at(ms), time.Minute+time.Duration(ms)*time.Millisecond)
		assert.False(t, l.unbounded(), "after %d ms", ms)
		h.end(l, time.Time{}) // a look with a bound does not put it off
	}
	l := h.begin(at(5_000), time.Minute+5*time.Second)
	assert.True(t, l.unbounded())
	assert.True(t, h.begin(at(5_001), time.Minute+5*time.Second).unbounded(), "until one was answered")
	h.end(l, time.Time{})
	assert.False(t, h.begin(at(5_100), time.Minute+5100*time.Millisecond).unbounded())
}

// A failover to a server with another clock: leases that it grants may be earlier than the
// head, but not than its time.
func TestWhereTheDatabasesTimeWentBackALookStartsThere(t *testing.T) {
	h := newHead()
	h.end(h.begin(at(10_000), time.Minute), time.Time{})
	l := h.begin(at(4_000), time.Minute+time.Second)
	assert.Equal(t, at(3_000), l.from)
	h.end(l, time.Time{})
	assert.Equal(t, at(3_000), h.begin(at(4_500), time.Minute+2*time.Second).from)
}

func TestEachSetOfTypesHasItsHead(t *testing.T) {
	var s core
	a := s.head(IndexLapse, "a")
	a.end(a.begin(at(0), time.Minute), time.Time{})
	assert.False(t, s.head(IndexLapse, "a").begin(at(1), time.Minute).unbounded())
	assert.True(t, s.head(IndexLapse, "a", "b").begin(at(1), time.Minute).unbounded())
	assert.True(t, s.head(IndexDue, "a").begin(at(1), time.Minute).unbounded())
	for n := range 3 * maxHeads {
		s.head(IndexLapse, time.Duration(n).String())
	}
	assert.LessOrEqual(t, len(s.heads.of), maxHeads)
}
