package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seeker is a database of types: each seek takes a millisecond.
type seeker struct {
	types []string // sorted: those that have tasks
	seeks int
	at    time.Duration
	err   error
}

func (s *seeker) Now() time.Time           { return time.Unix(0, 0).Add(s.at) }
func (s *seeker) Monotonic() time.Duration { return s.at }

func (s *seeker) next(_ context.Context, from string) (string, error) {
	s.seeks++
	s.at += time.Millisecond
	if i, _ := slices.BinarySearch(s.types, from); i < len(s.types) && s.err == nil {
		return s.types[i], nil
	}
	return "", s.err
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("t%05d", i))
	}
	return out
}

func look(t *testing.T, s *TypeScan, wanted []string) (types []string, whole bool) {
	t.Helper()
	types, whole, err := s.Look(t.Context(), wanted)
	require.NoError(t, err)
	return types, whole
}

func TestALookAtThousandsOfTypesTakesABoundedTime(t *testing.T) {
	db := &seeker{at: time.Hour, types: names(3000)}
	s := NewTypeScan(db.next, db)
	looks, found := 0, 0
	for whole := false; !whole; looks++ {
		began := db.at
		var types []string
		types, whole = look(t, s, names(3000))
		require.LessOrEqual(t, db.at-began, scanTime+time.Millisecond)
		require.GreaterOrEqual(t, len(types), found, "what was found stays known")
		found = len(types)
	}
	require.Equal(t, 3000, found)
	require.Equal(t, 61, looks, "each goes on where the last one ended; the last sees the end")

	seeks := db.seeks
	types, whole := look(t, s, names(3000))
	require.True(t, whole)
	require.Len(t, types, 3000)
	require.Equal(t, seeks, db.seeks, "the answer of a long pass holds for a moment")
	db.at += passHolds
	_, whole = look(t, s, names(3000))
	require.False(t, whole)
	require.Greater(t, db.seeks, seeks)
}

func TestAShortPassIsMadeAnewEachTime(t *testing.T) {
	db := &seeker{at: time.Hour, types: []string{"b", "d", "x", "y"}}
	s := NewTypeScan(db.next, db)
	wanted := []string{"a", "b", "c", "d", "e"}
	types, whole := look(t, s, wanted)
	require.True(t, whole)
	require.Equal(t, []string{"b", "d"}, types)
	require.Equal(t, 3, db.seeks, "b, d, and what follows: those in between and behind are passed over")
	db.types = []string{"c", "z"}
	types, whole = look(t, s, wanted)
	require.True(t, whole)
	require.Equal(t, []string{"c"}, types, "the others have none any more")
	types, whole = look(t, s, nil)
	require.True(t, whole)
	require.Equal(t, []string{"c", "z"}, types, "of all")
}

func TestATypeThatIsHeardOfIsKnownAtOnce(t *testing.T) {
	db := &seeker{at: time.Hour, types: names(200)}
	s := NewTypeScan(db.next, db)
	wanted := append(names(200), "zz")
	for whole := false; !whole; {
		_, whole = look(t, s, wanted)
	}
	s.Heard("zz")
	types, whole := look(t, s, wanted)
	require.True(t, whole)
	require.Contains(t, types, "zz")
}

func TestAScanThatFailedGoesOnFromThere(t *testing.T) {
	db := &seeker{at: time.Hour, types: names(80)}
	s := NewTypeScan(db.next, db)
	_, whole := look(t, s, names(80))
	require.False(t, whole)
	db.err = errors.New("away")
	_, _, err := s.Look(t.Context(), names(80))
	require.ErrorIs(t, err, db.err)
	db.err = nil
	types, whole := look(t, s, names(80))
	require.True(t, whole)
	require.Len(t, types, 80)
}
