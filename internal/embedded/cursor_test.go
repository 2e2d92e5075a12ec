package embedded

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// heldCursors are the cursors of a server that may hold 100 bytes, and its clock.
func heldCursors() (*cursors, *testClock) {
	clock := &testClock{now: time.Unix(1_700_000_000, 0)}
	return &cursors{now: clock.Now, limit: 100, m: map[int64]*cursor{}}, clock
}

func holding(bytes int) *cursor {
	c := &cursor{}
	c.keep(make(bson.Raw, bytes), 0)
	return c
}

func TestAForgottenCursorMakesRoomForOthers(t *testing.T) {
	l, clock := heldCursors()
	a, b, c := holding(40), holding(40), holding(40)
	for _, cur := range []*cursor{a, b} {
		require.NoError(t, l.add(cur))
		clock.Add(time.Second)
	}
	_, err := l.take(a.id)
	require.NoError(t, err)
	require.NoError(t, l.put(a, false)) // so b is the one that was not used for longest
	clock.Add(time.Second)
	require.NoError(t, l.add(c))
	require.Equal(t, 80, l.bytes)
	for _, cur := range []*cursor{a, c} {
		_, ok, err := cur.pull()
		require.NoError(t, err)
		require.True(t, ok)
	}
	_, err = l.take(b.id)
	require.NoError(t, err, "it is there still, to say why it ended")
	_, _, err = b.pull()
	require.Equal(t, mongoerr.QueryExceededMemoryLimit, mongoerr.Code(err))
}

func TestACursorThatIsReadIsNotEndedForAnother(t *testing.T) {
	l, clock := heldCursors()
	read, idle := holding(60), holding(30)
	require.NoError(t, l.add(read))
	clock.Add(time.Second)
	require.NoError(t, l.add(idle))
	_, err := l.take(read.id)
	require.NoError(t, err)
	require.NoError(t, l.add(holding(60)))
	_, ok, err := read.pull()
	require.NoError(t, err)
	require.True(t, ok)
	_, _, err = idle.pull()
	require.Equal(t, mongoerr.QueryExceededMemoryLimit, mongoerr.Code(err))
	require.NoError(t, l.put(read, true))
	require.Equal(t, 60, l.bytes)
}

func TestACursorThatAloneHoldsTooMuchEndsNoOther(t *testing.T) {
	l, _ := heldCursors()
	first := holding(90)
	require.NoError(t, l.add(first))
	require.Equal(t, mongoerr.QueryExceededMemoryLimit, mongoerr.Code(l.add(holding(101))))
	require.Equal(t, 90, l.bytes)
	require.Len(t, l.m, 1)
	_, ok, err := first.pull()
	require.NoError(t, err)
	require.True(t, ok)
}
