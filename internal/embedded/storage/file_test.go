package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(Options{Path: path, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func doc(id any, more ...bson.E) bson.Raw {
	return mustRaw(append(bson.D{{Key: "_id", Value: id}}, more...))
}

func insert(t *testing.T, s *Store, docs ...bson.Raw) error {
	t.Helper()
	w := s.Writer(t.Context(), nil)
	for _, d := range docs {
		if err := w.Insert("t.c", d); err != nil {
			_ = w.Finish()
			return err
		}
	}
	return w.Finish()
}

func TestFileKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	spec, err := ParseIndexSpec(mustRaw(bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "name", Value: "a_1"},
		{Key: "unique", Value: true}, {Key: "partialFilterExpression", Value: bson.D{{Key: "a", Value: bson.D{{Key: "$exists", Value: true}}}}}}))
	require.NoError(t, err)
	w := s.Writer(t.Context(), nil)
	_, _, created, err := w.CreateIndexes("t.c", []*IndexSpec{spec})
	require.NoError(t, err)
	require.True(t, created)
	require.NoError(t, w.Finish())
	require.NoError(t, insert(t, s, doc(1, bson.E{Key: "a", Value: 1}), doc(2), doc(3)))
	w = s.Writer(t.Context(), nil)
	rec, ok := w.FindID("t.c", doc(3).Lookup("_id"))
	require.True(t, ok)
	_, err = w.Modify("t.c", rec.ID, func(Record) (bson.Raw, Verdict, error) { return nil, Remove, nil })
	require.NoError(t, err)
	require.NoError(t, w.Finish())
	require.NoError(t, s.Close())

	s = open(t, path)
	c := s.Snapshot().Collection("t.c")
	require.Equal(t, 2, c.Len())
	require.Equal(t, 1, c.Index("a_1").tree.Len())
	err = insert(t, s, doc(9, bson.E{Key: "a", Value: 1}))
	require.Equal(t, mongoerr.DuplicateKey, mongoerr.Code(err))
	require.ErrorContains(t, err, `collection: t.c index: a_1 dup key: {"a":1}`)
}

func TestConcurrentWritersShareATransactionOfTheFile(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	require.NoError(t, insert(t, s, doc("first")))
	// While somebody holds the file, whoever writes must gather.
	hold, err := s.file.db.Begin(true)
	require.NoError(t, err)
	const writers = 50
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if err := insert(t, s, doc(i)); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.live["t.c"].Len() == writers+1
	}, 2*time.Minute, time.Millisecond)
	require.Equal(t, 1, s.Snapshot().Collection("t.c").Len(), "nothing is seen before it is durable")
	require.NoError(t, hold.Rollback())
	wg.Wait()
	require.Equal(t, writers+1, s.Snapshot().Collection("t.c").Len())
	require.LessOrEqual(t, s.file.commits, 4, "the first, perhaps one more, and all others together")
}

// Whoever reads, and watches from the time of the answer, sees each write in one or the other.
func TestClusterTimeIsBeforeWritesThatAreNotVisible(t *testing.T) {
	var sec atomic.Int64
	sec.Store(1_700_000_000)
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "db"), Now: func() time.Time { return time.Unix(sec.Load(), 0) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, insert(t, s, doc("first")))
	hold, err := s.file.db.Begin(true) // a slow disk
	require.NoError(t, err)
	first, second := s.Writer(t.Context(), nil), s.Writer(t.Context(), nil)
	flushing := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pending == nil
	}
	sec.Add(1)
	require.NoError(t, first.Insert("t.c", doc(1)))
	first.unlock()
	require.Eventually(t, flushing, time.Minute, time.Millisecond)
	require.NoError(t, second.Insert("t.c", doc(2)))
	second.unlock()
	sec.Add(1)
	at := s.ClusterTime()
	require.NoError(t, hold.Rollback())
	require.Less(t, at.T, uint32(sec.Load()))
	require.NoError(t, first.Finish())
	require.NoError(t, second.Finish())
	w := s.Log().Watch("t.c")
	defer s.Log().Unwatch(w)
	events, _, err := s.Log().After(s.Log().Since(uint64(at.T)<<32|uint64(at.I)), w, 10)
	require.NoError(t, err)
	require.Len(t, events, 2)

	now := func() bool { return s.ClusterTime() == Timestamp(uint64(sec.Load())<<32) }
	require.Eventually(t, now, time.Minute, time.Millisecond, "all is visible")
	s.file.inject = func() error { return os.ErrPermission }
	require.ErrorContains(t, insert(t, s, doc(3)), "not written")
	sec.Add(1)
	require.Eventually(t, now, time.Minute, time.Millisecond, "what was taken back does not hold it")
}

func TestFailedWriteLeavesWhatWasThere(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	require.NoError(t, insert(t, s, doc(1)))
	events, _, err := s.Log().After(s.Log().Last(), s.Log().Watch(""), 10)
	require.NoError(t, err)
	require.Empty(t, events)
	at := s.Log().Last()

	s.file.inject = func() error { return os.ErrPermission }
	require.ErrorContains(t, insert(t, s, doc(2)), "not written")
	s.file.inject = nil
	require.Equal(t, 1, s.Snapshot().Collection("t.c").Len())
	require.NoError(t, insert(t, s, doc(2)), "it is not there")
	require.NoError(t, insert(t, s, doc(3)))
	require.Equal(t, 3, s.Snapshot().Collection("t.c").Len())
	events, _, err = s.Log().After(at, s.Log().Watch(""), 10)
	require.NoError(t, err)
	require.Len(t, events, 2)
}

// A command of several sections is not acknowledged when one of them was lost,
// even if those after it are not.
func TestLostSectionFailsTheCommand(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	require.NoError(t, insert(t, s, doc("first")))
	s.file.inject = func() error { return os.ErrPermission }
	w := s.Writer(t.Context(), nil)
	for i := range maxSection {
		require.NoError(t, w.Insert("t.c", doc(i)))
	}
	lost := w.batch
	w.Pause()
	<-lost.done
	s.file.inject = nil
	require.ErrorContains(t, w.Insert("t.c", doc("later")), "not written")
	require.ErrorContains(t, w.Finish(), "not written")
	require.NoError(t, insert(t, s, doc("other")))
	require.Equal(t, 2, s.Snapshot().Collection("t.c").Len())
}

// What a retry must find grows with every section of a command: it goes to the file
// once a batch, as it is then, or a hundred thousand upserts would take hours.
func TestRetryIsStoredOnceABatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	require.NoError(t, insert(t, s, doc("first")))
	hold, err := s.file.db.Begin(true)
	require.NoError(t, err)
	done := &Retry{TxnNumber: 1}
	w := s.Writer(t.Context(), nil)
	w.Remember = func() (string, *Retry) { return "session", done }
	const sections = 50
	flushing := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pending == nil
	}
	require.NoError(t, w.Insert("t.c", doc("second")))
	w.unlock()
	require.Eventually(t, flushing, time.Minute, time.Millisecond, "it waits for hold; what follows stays in the next batch")
	for i := range int32(sections) {
		require.NoError(t, w.Insert("t.c", doc(i)))
		done.Add(i, Statement{N: 1, Upserted: doc(i).Lookup("_id")})
		w.unlock()
	}
	s.mu.Lock()
	ops := len(s.pending.ops)
	s.mu.Unlock()
	require.NoError(t, hold.Rollback())
	require.LessOrEqual(t, ops, sections, "nothing but the documents")
	require.NoError(t, w.Finish())
	require.NoError(t, s.Close())
	s = open(t, path)
	require.Len(t, s.Retry("session").Done, sections)
}

func TestNothingFollowsATokenOfAnEarlierLife(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	life := func() *Store {
		at = at.Add(time.Millisecond)
		s, err := Open(Options{Now: func() time.Time { return at }})
		require.NoError(t, err)
		return s
	}
	s := life()
	require.NoError(t, insert(t, s, doc(1), doc(2), doc(3)))
	_, _, err := life().Log().After(s.Log().Last(), s.Log().Watch("t.c"), 1)
	require.Equal(t, mongoerr.ChangeStreamHistoryLost, mongoerr.Code(err), "also within the same second")
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	now := func() time.Time { return time.Unix(1, 0) }
	s := open(t, path)
	var docs []bson.Raw
	for i := range 2000 {
		docs = append(docs, doc(i, bson.E{Key: "text", Value: fmt.Sprintf("%0200d", i)}))
	}
	require.NoError(t, insert(t, s, docs...))
	_, err := Open(Options{Path: path, Now: now})
	require.ErrorContains(t, err, "in use by another process")
	require.NoError(t, s.Close())

	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	cut := filepath.Join(dir, "cut")
	require.NoError(t, os.WriteFile(cut, whole[:len(whole)/8], 0o600))
	_, err = Open(Options{Path: cut, Now: now})
	require.ErrorContains(t, err, "is truncated to")

	hole := filepath.Join(dir, "hole")
	clear(whole[len(whole)/8 : len(whole)/2])
	require.NoError(t, os.WriteFile(hole, whole, 0o600))
	_, err = Open(Options{Path: hole, Now: now})
	require.ErrorContains(t, err, "is damaged")

	for _, theirs := range []string{"theirs", "meta"} {
		db, err := bolt.Open(filepath.Join(dir, theirs), 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte(theirs)); return err }))
		require.NoError(t, db.Close())
		_, err = Open(Options{Path: filepath.Join(dir, theirs), Now: now})
		require.ErrorContains(t, err, "not a database")
	}

	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("this is no database, whoever may think so"), 0o600))
	_, err = Open(Options{Path: text, Now: now})
	require.ErrorContains(t, err, "not a database")

	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, number(99)) }))
	require.NoError(t, db.Close())
	_, err = Open(Options{Path: path, Now: now})
	require.ErrorContains(t, err, "use a newer one")
}

func TestCompactKeepsEverythingButTheHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	var docs []bson.Raw
	for i := range 5000 {
		docs = append(docs, doc(i, bson.E{Key: "text", Value: fmt.Sprintf("%02000d", i)}))
	}
	require.NoError(t, insert(t, s, docs...))
	w := s.Writer(t.Context(), nil)
	for it := w.View("t.c").Scan(); it.Next(); {
		if id := it.Item().ID; id%100 != 0 {
			_, err := w.Modify("t.c", id, func(Record) (bson.Raw, Verdict, error) { return nil, Remove, nil })
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Finish())
	_, _, err := Compact(path)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(path+".compact", []byte("what a killed one left"), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	before, after, err := Compact(link)
	require.NoError(t, err)
	require.Less(t, after, before)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, after, st.Size(), "the file, not the link to it")
	s = open(t, path)
	c := s.Snapshot().Collection("t.c")
	require.Equal(t, 50, c.Len())
	problems, err := c.Validate(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
}

// A server that starts while the file is compacted opens the old file, and gets its lock
// when another file has the name.
func TestFileThatWasCompactedWhileItWasOpenedIsOpenedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	require.NoError(t, insert(t, s, doc("old")))
	require.NoError(t, s.Close())

	opened := 0
	compactBehind := func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		if opened++; opened == 1 {
			_, _, err := Compact(path)
			require.NoError(t, err)
		}
		return f, err
	}
	db, err := openBoltWith(path, compactBehind, syncPath)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put([]byte("note"), []byte("kept")) }))
	require.NoError(t, db.Close())
	require.Equal(t, 2, opened)

	db, err = openBolt(path)
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		require.Equal(t, "kept", string(tx.Bucket(bucketMeta).Get([]byte("note"))))
		return nil
	}))
	require.NoError(t, db.Close())
	s = open(t, path)
	require.Equal(t, 1, s.Snapshot().Collection("t.c").Len())
}

func TestFileThatIsReplacedAgainAndAgainIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, open(t, path).Close())
	replaced := func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		_, _, failed := Compact(path)
		require.NoError(t, failed)
		return f, err
	}
	_, err := openBoltWith(path, replaced, syncPath)
	require.ErrorContains(t, err, "was replaced by another while it was opened")
	require.NoError(t, open(t, path).Close(), "it is not locked")
}

// A new file whose folder is not synced may be gone after a power cut, with all that was written to it.
func TestTheFolderOfANewFileIsSynced(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(folder, "db"), path))
	var synced []string
	var failure error
	life := func() error {
		db, err := openBoltWith(path, os.OpenFile, func(path string) error {
			synced = append(synced, path)
			return failure
		})
		if err == nil {
			err = db.Close()
		}
		return err
	}
	failure = os.ErrPermission
	require.ErrorIs(t, life(), failure)
	failure = nil
	require.NoError(t, life())
	require.Equal(t, []string{folder, folder}, synced, "it was not durable at first")
	require.NoError(t, life())
	require.Len(t, synced, 2, "once is enough")
}

func TestValidateFindsWhatDoesNotFit(t *testing.T) {
	s := open(t, "")
	require.NoError(t, insert(t, s, doc(1), doc(2)))
	c := s.Snapshot().Collection("t.c").thaw()
	c.Indexes[0].tree.Delete(Entry{Key: string(idSpecKey(t, doc(1))), RID: 1})
	c.Indexes[0].tree.Set(Entry{Key: "x", RID: 2})
	problems, err := c.Validate(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"index _id_ lacks a key of record 1", "index _id_ has a key of record 2 too many"}, problems)
}

func idSpecKey(t *testing.T, d bson.Raw) []byte {
	t.Helper()
	keys, _, err := idSpec.Keys(d)
	require.NoError(t, err)
	return keys[0]
}
