package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// formatVersion is written to new files; files of a newer one are refused.
const formatVersion = 1

// The buckets of the file. docs holds a bucket for each collection.
var (
	bucketMeta     = []byte("meta")     // "format", "last" and "floor" of the log
	bucketCatalog  = []byte("catalog")  // collection id -> catalogEntry
	bucketDocs     = []byte("docs")     // collection id -> record id -> document
	bucketLog      = []byte("log")      // time -> logEntry
	bucketSessions = []byte("sessions") // session -> Retry

	keyFormat = []byte("format")
	keyLast   = []byte("last")
	keyFloor  = []byte("floor")
)

// trimStep bounds how many old log entries a write deletes, so that those who wait for it need not wait for long.
// A write of many events deletes twice as many as it has: the log must not grow faster than it is cut.
const trimStep = 10_000

// lockTimeout is how long Open waits for another process to close the file.
const lockTimeout = time.Second

// file is the bbolt file behind a store: everything the store needs to begin
// again, but no indexes; those are rebuilt when it is opened.
type file struct {
	db      *bolt.DB
	mu      sync.Mutex
	floor   uint64 // log entries up to here may be deleted
	trimmed uint64 // and up to here are

	percent int // the process's garbage collection before a large file was opened; 0: it was left alone

	commits int          // batches written
	doubt   error        // a failed write may be in the file all the same: nothing more is written
	inject  func() error // tests make writes fail with it
}

// fileOp is one change of the file.
type fileOp func(*fileTx) error

// fileTx is a transaction of the file, with the buckets of documents it met.
type fileTx struct {
	*bolt.Tx
	docs map[uint64]*bolt.Bucket
}

func (tx *fileTx) documents(collection uint64) (*bolt.Bucket, error) {
	if c := tx.docs[collection]; c != nil {
		return c, nil
	}
	c := tx.Bucket(bucketDocs).Bucket(number(collection))
	if c == nil {
		return nil, fmt.Errorf("collection %d is not in the file", collection)
	}
	c.FillPercent = 0.9 // records come in order; half full pages would double the file
	tx.docs[collection] = c
	return c, nil
}

// putDocument stores a record, or deletes it if it has no document.
func putDocument(collection uint64, r Record) fileOp {
	return func(tx *fileTx) error {
		c, err := tx.documents(collection)
		switch {
		case err != nil:
			return err
		case r.Doc == nil:
			return c.Delete(number(r.ID))
		}
		return c.Put(number(r.ID), r.Doc)
	}
}

func dropCollection(collection uint64) fileOp {
	return func(tx *fileTx) error {
		delete(tx.docs, collection)
		return errors.Join(tx.Bucket(bucketDocs).DeleteBucket(number(collection)), tx.Bucket(bucketCatalog).Delete(number(collection)))
	}
}

// putSession stores what is remembered of a session; nil deletes it.
func putSession(name string, r *Retry) fileOp {
	if r == nil {
		return func(tx *fileTx) error { return tx.Bucket(bucketSessions).Delete([]byte(name)) }
	}
	return func(tx *fileTx) error { return tx.Bucket(bucketSessions).Put([]byte(name), mustRaw(r)) }
}

type catalogEntry struct {
	Namespace string      `bson:"ns"`
	UUID      bson.Binary `bson:"uuid"`
	Indexes   []bson.Raw  `bson:"indexes"` // without that of _id
}

func putCatalog(c *Collection) fileOp {
	e := catalogEntry{Namespace: c.Namespace, UUID: c.uuid}
	for _, x := range c.Indexes[1:] {
		e.Indexes = append(e.Indexes, x.Spec.Raw())
	}
	id, encoded := number(c.id), mustRaw(e)
	return func(tx *fileTx) error {
		_, err := tx.Bucket(bucketDocs).CreateBucketIfNotExists(id)
		return errors.Join(err, tx.Bucket(bucketCatalog).Put(id, encoded))
	}
}

// logEntry is an event in the file.
type logEntry struct {
	Kind        Kind     `bson:"k"`
	Namespace   string   `bson:"ns"`
	Key         bson.Raw `bson:"id"`
	Doc         bson.Raw `bson:"o"`
	Description bson.Raw `bson:"d"`
	Session     bson.Raw `bson:"s"`
	TxnNumber   int64    `bson:"n"`
}

// encode writes a logEntry by hand: there is one for every write. Nobody sees the
// event yet; from here on its description stands for the documents.
func (e *Event) encode() []byte {
	description := e.Description()
	e.before, e.after, e.paths = nil, nil, nil
	b := make([]byte, 0, 128+len(e.Namespace)+len(e.Key)+len(e.Doc)+len(description))
	at, b := bsoncore.AppendDocumentStart(b)
	b = bsoncore.AppendStringElement(b, "k", string(e.Kind))
	b = bsoncore.AppendStringElement(b, "ns", e.Namespace)
	for _, f := range []struct {
		key string
		doc bson.Raw
	}{{"id", e.Key}, {"o", e.Doc}, {"d", description}, {"s", e.Session}} {
		if f.doc != nil {
			b = bsoncore.AppendDocumentElement(b, f.key, f.doc)
		}
	}
	if e.Session != nil {
		b = bsoncore.AppendInt64Element(b, "n", e.TxnNumber)
	}
	b, _ = bsoncore.AppendDocumentEnd(b, at) // at is where it started
	return b
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// openBolt opens or makes the file, with an error a user can act on.
func openBolt(path string) (*bolt.DB, error) { return openBoltWith(path, os.OpenFile, syncPath) }

// openTries bounds how often openBoltWith begins again when the file was replaced.
const openTries = 10

// openBoltWith is openBolt with a function that opens the file before it is locked, and one that makes
// the names in a folder durable. While it waits for the lock, Compact may put another file in its place:
// only the file that has the name once the lock is held is the database.
func openBoltWith(path string, openFile func(string, int, os.FileMode) (*os.File, error), syncFolder func(string) error) (*bolt.DB, error) {
	for range openTries {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			if err := checkPages(path, st.Size()); err != nil {
				return nil, err
			}
		}
		var db *bolt.DB
		var f *os.File
		err := guard(path, func() (err error) {
			db, err = bolt.Open(path, 0o600, &bolt.Options{
				Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoFreelistSync: true,
				OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
					f, err = openFile(name, flag, mode)
					return f, err
				},
			})
			return err
		})
		if err != nil {
			return nil, openError(path, err)
		}
		named, err := hasName(f, path)
		switch {
		case err != nil:
			return nil, errors.Join(openError(path, err), db.Close())
		case !named:
			if err := db.Close(); err != nil {
				return nil, openError(path, err)
			}
			continue
		}
		err = guard(path, func() error { return db.Update(func(tx *bolt.Tx) error { return prepare(path, tx, syncFolder) }) })
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return db, nil
	}
	return nil, fmt.Errorf("file %s was replaced by another while it was opened, %d times", path, openTries)
}

// hasName reports whether path still leads to the open file.
func hasName(f *os.File, path string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return os.SameFile(own, now), err
}

// prepare makes the buckets of a new file, and refuses one of a newer version, or of
// another program. A file that has buckets has a durable name: what it holds must not be
// lost with its entry in the folder.
func prepare(path string, tx *bolt.Tx, syncFolder func(string) error) error {
	k, _ := tx.Cursor().First()
	if k == nil {
		file, err := filepath.EvalSymlinks(path)
		if err == nil {
			err = syncFolder(filepath.Dir(file))
		}
		if err != nil {
			return fmt.Errorf("make the name of the new file %s durable: %w", path, err)
		}
	}
	if own := tx.Bucket(bucketMeta); k != nil && (own == nil || len(own.Get(keyFormat)) != 8) {
		return fmt.Errorf("file %s is not a database of the embedded server", path)
	}
	meta, err := tx.CreateBucketIfNotExists(bucketMeta)
	if err != nil {
		return err
	}
	if v := meta.Get(keyFormat); v != nil && binary.BigEndian.Uint64(v) > formatVersion {
		return fmt.Errorf("file %s has format %d, this program knows up to %d: use a newer one", path, binary.BigEndian.Uint64(v), formatVersion)
	}
	for _, name := range [][]byte{bucketCatalog, bucketDocs, bucketLog, bucketSessions} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return meta.Put(keyFormat, number(formatVersion))
}

// checkPages refuses a file that was cut off, or has a page that is none: touching
// it in a goroutine of bbolt, where guard is not, would kill the process.
func checkPages(path string, size int64) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return openError(path, err)
	}
	var walk func(b *bolt.Bucket) error
	walk = func(b *bolt.Bucket) error {
		var last []byte
		return b.ForEach(func(k, v []byte) error {
			if last != nil && bytes.Compare(last, k) >= 0 {
				return fmt.Errorf("file %s is damaged: keys out of order; restore it from a copy", path)
			}
			if last = k; v == nil {
				return walk(b.Bucket(k))
			}
			return nil
		})
	}
	err = guard(path, func() error {
		return db.View(func(tx *bolt.Tx) error {
			if want := tx.Size(); size < want {
				return fmt.Errorf("file %s is truncated to %d of %d bytes; restore it from a backup", path, size, want)
			}
			return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return walk(b) })
		})
	})
	return errors.Join(err, db.Close())
}

// guard makes an error of what bbolt panics with when a page is not what it should
// be, and of a pointer in it that leads out of the file.
func guard(path string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("file %s is damaged: %v; restore it from a copy", path, p)
		}
	}()
	return read()
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("file %s is in use by another process", path)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("file %s is not a database of the embedded server, or is damaged: %w", path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// isDiskFull looks at the text too: bbolt does not wrap all errors.
func isDiskFull(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(full error) bool {
		return errors.Is(err, full) || strings.HasSuffix(err.Error(), full.Error())
	})
}

// write makes a batch durable: all of it or nothing.
func (f *file) write(b *batch) error {
	if f.doubt != nil {
		return f.doubt
	}
	f.mu.Lock()
	floor := f.floor
	f.mu.Unlock()
	before := f.lastTx()
	trimmed := f.trimmed
	err := f.db.Update(func(tx *bolt.Tx) (err error) {
		ft := &fileTx{Tx: tx, docs: map[uint64]*bolt.Bucket{}}
		for _, op := range b.ops {
			if err := op(ft); err != nil {
				return err
			}
		}
		if f.inject != nil {
			if err := f.inject(); err != nil {
				return err
			}
		}
		trimmed, err = writeLog(tx, b.events, trimmed, floor)
		return err
	})
	switch {
	case err == nil:
		f.commits++
		f.trimmed = trimmed
	case f.lastTx() != before:
		f.doubt = fmt.Errorf("the file is in doubt since a write failed at its very end; restart the server: %w", err)
	}
	return err
}

// lastTx is the number of the transaction that the file shows.
func (f *file) lastTx() (id int) {
	_ = f.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil }) // fails only when closed
	return id
}

// writeLog adds events to the log and cuts it towards floor; it returns how far it is cut now.
func writeLog(tx *bolt.Tx, events []*Event, trimmed, floor uint64) (uint64, error) {
	log, meta := tx.Bucket(bucketLog), tx.Bucket(bucketMeta)
	log.FillPercent = 0.95 // it grows at its end only
	for _, e := range events {
		if err := log.Put(number(e.TS), e.encode()); err != nil {
			return trimmed, err
		}
	}
	if len(events) > 0 {
		if err := meta.Put(keyLast, number(events[len(events)-1].TS)); err != nil {
			return trimmed, err
		}
	}
	if floor <= trimmed {
		return trimmed, nil
	}
	most := max(trimStep, 2*len(events))
	// They are listed first: a cursor walks over each page that was emptied since, again at every step.
	var old [][]byte
	c := log.Cursor()
	for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) <= floor && len(old) < most; k, _ = c.Next() {
		old = append(old, slices.Clone(k))
	}
	if len(old) == most {
		floor = binary.BigEndian.Uint64(old[most-1]) // the rest is for the next write
	}
	for _, k := range old {
		if err := log.Delete(k); err != nil {
			return trimmed, err
		}
	}
	return floor, meta.Put(keyFloor, number(floor))
}

// begin notes where the log of a new file begins.
func (f *file) begin(floor, last uint64) error {
	f.floor, f.trimmed = floor, floor
	return f.db.Update(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		return errors.Join(meta.Put(keyFloor, number(floor)), meta.Put(keyLast, number(last)))
	})
}

// trim allows the next write to delete log entries up to floor.
func (f *file) trim(floor uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floor = floor
}

// close notes the free pages, so that the next to open the file need not look at
// every page for them.
func (f *file) close() error {
	if f.commits > 0 && f.doubt == nil {
		f.db.NoFreelistSync = false
		_ = f.db.Update(func(*bolt.Tx) error { return nil }) // without, it takes longer to open
	}
	if f.percent != 0 {
		debug.SetGCPercent(f.percent)
	}
	return f.db.Close()
}
