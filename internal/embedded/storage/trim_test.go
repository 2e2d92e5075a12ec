package storage

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// logOnFile is how many entries the log in the file has, the first of them, and how far the file says it is cut.
func logOnFile(t *testing.T, s *Store) (entries int, first, floor uint64) {
	t.Helper()
	require.NoError(t, s.file.db.View(func(tx *bolt.Tx) error {
		entries = tx.Bucket(bucketLog).Inspect().KeyN
		k, _ := tx.Bucket(bucketLog).Cursor().First()
		first = binary.BigEndian.Uint64(k)
		floor = binary.BigEndian.Uint64(tx.Bucket(bucketMeta).Get(keyFloor))
		return nil
	}))
	return entries, first, floor
}

// A log that is far too long is cut over several writes: one that deleted all of it would keep all others waiting.
func TestALongLogIsCutStepByStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	const events = 2*trimStep + trimStep/2
	docs := make([]bson.Raw, events)
	for i := range docs {
		docs[i] = doc(i)
	}
	require.NoError(t, insert(t, s, docs...))
	shorten := func() {
		s.log.mu.Lock()
		s.log.limit = 1
		s.log.mu.Unlock()
	}
	shorten()
	require.NoError(t, insert(t, s, doc("cuts the log in memory")))
	last := s.Log().Last()
	entries, _, _ := logOnFile(t, s)
	require.Equal(t, events+1, entries)

	check := func(left int) {
		t.Helper()
		entries, first, floor := logOnFile(t, s)
		require.Equal(t, left, entries)
		require.Equal(t, floor+1, first, "the first event left is the one after the floor")
		require.Equal(t, floor, s.file.trimmed)
	}
	require.NoError(t, insert(t, s, doc("a step")))
	check(events + 2 - trimStep)
	require.NoError(t, insert(t, s, doc("another")))
	check(events + 3 - 2*trimStep)
	require.NoError(t, s.Close())

	s = open(t, path)
	check(events + 3 - 2*trimStep)
	_, _, floor := logOnFile(t, s)
	w := s.Log().Watch("t.c")
	found, _, err := s.Log().After(floor, w, events)
	require.NoError(t, err)
	require.Len(t, found, events+3-2*trimStep, "a stream can resume where the log in the file begins")
	_, _, err = s.Log().After(floor-1, w, 1)
	require.Error(t, err)

	shorten()
	require.NoError(t, insert(t, s, doc("cuts the log in memory again")))
	require.NoError(t, insert(t, s, doc("the rest")))
	entries, first, floor := logOnFile(t, s)
	require.Equal(t, 2, entries, "the last write that was visible before, and its own")
	require.Greater(t, first, last)
	require.Less(t, floor, first)
}

// Writes of more events than a step still cut the log faster than they make it longer.
func TestALogIsCutFasterThanItGrows(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	write := func(from, n uint64, floor uint64) uint64 {
		t.Helper()
		b := &batch{}
		for i := range n {
			b.events = append(b.events, &Event{TS: from + i, Kind: Dropped, Namespace: "t.c"})
		}
		s.file.trim(floor)
		require.NoError(t, s.file.write(b))
		return from + n
	}
	at := write(s.Log().Last()+1, 3*trimStep, 0)
	before, _, _ := logOnFile(t, s)
	at = write(at, trimStep, at-1)
	after, _, _ := logOnFile(t, s)
	require.Equal(t, before-trimStep, after)
	write(at, 0, at-1)
	write(at, 1, at-1)
	after, first, floor := logOnFile(t, s)
	require.Equal(t, 1, after)
	require.Equal(t, at, first)
	require.Equal(t, at-1, floor)
}
