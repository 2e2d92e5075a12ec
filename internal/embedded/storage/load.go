package storage

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// openFile opens the file and brings what it holds into memory.
func (s *Store) openFile(path string) error {
	db, err := openBolt(path)
	if err != nil {
		return err
	}
	s.file = &file{db: db}
	forgetPages(db) // all of them, if bbolt had to look for the free ones
	if st, err := os.Stat(path); err == nil && st.Size() >= largeFile {
		s.file.percent = debug.SetGCPercent(largeFilePercent)
		if 0 <= s.file.percent && s.file.percent < largeFilePercent {
			debug.SetGCPercent(s.file.percent) // somebody wants even less
		}
	}
	if err = guard(path, func() error { return db.View(s.load) }); err != nil {
		_ = s.file.close() // the first error says more
		return fmt.Errorf("read %s: %w", path, err)
	}
	if s.file.percent != 0 {
		forgetPages(db)
		debug.FreeOSMemory() // what reading took
	}
	return nil
}

func (s *Store) load(tx *bolt.Tx) error {
	err := tx.Bucket(bucketCatalog).ForEach(func(k, v []byte) error {
		return s.loadCollection(binary.BigEndian.Uint64(k), v, tx.Bucket(bucketDocs).Bucket(k))
	})
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketSessions).ForEach(s.loadSession); err != nil {
		return err
	}
	return s.loadLog(tx)
}

// Of a file from largeFile bytes on, what is read is kept tight: the garbage of
// this process may then be this percentage of what it holds, for as long as the
// file is open. A tenth more processor time is the price of half a gigabyte.
const (
	largeFile        = 64 << 20
	largeFilePercent = 40
)

// pagesEvery is after how many documents the pages they were read from are
// forgotten.
const pagesEvery = 10_000

func (s *Store) loadCollection(id uint64, definition []byte, docs *bolt.Bucket) error {
	var entry catalogEntry
	if err := bson.Unmarshal(definition, &entry); err != nil {
		return fmt.Errorf("definition of collection %d: %w", id, err)
	}
	if docs == nil {
		return fmt.Errorf("collection %s has no documents' bucket", entry.Namespace)
	}
	c := newCollection(entry.Namespace, id, entry.UUID)
	err := docs.ForEach(func(k, v []byte) error {
		doc := bson.Raw(slices.Clone(v))
		if err := doc.Validate(); err != nil {
			return fmt.Errorf("document %x of %s: %w", k, entry.Namespace, err)
		}
		rid := binary.BigEndian.Uint64(k)
		if c.docs.Len()%pagesEvery == pagesEvery-1 {
			forgetPages(s.file.db)
		}
		s.nextRID = max(s.nextRID, rid)
		r := Record{ID: rid, Doc: doc}
		c.docs.Load(r)
		c.bytes += r.bytes()
		return nil
	})
	if err != nil {
		return err
	}
	for _, raw := range entry.Indexes {
		spec, err := ParseIndexSpec(raw)
		if err != nil {
			return fmt.Errorf("index of %s: %w", entry.Namespace, err)
		}
		c.Indexes = append(c.Indexes, newIndex(spec))
	}
	for _, x := range c.Indexes {
		if err := c.build(x); err != nil {
			return fmt.Errorf("index %s of %s: %w", x.Spec.Name, entry.Namespace, err)
		}
	}
	s.nextColl = max(s.nextColl, id)
	s.live[entry.Namespace] = c
	s.changed[entry.Namespace] = struct{}{}
	return nil
}

func (s *Store) loadSession(k, v []byte) error {
	s.retries[string(k)] = &Retry{}
	if err := bson.Unmarshal(slices.Clone(v), s.retries[string(k)]); err != nil {
		return fmt.Errorf("session %x: %w", k, err)
	}
	return nil
}

func (s *Store) loadLog(tx *bolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if v := meta.Get(keyLast); v != nil {
		s.log.last = binary.BigEndian.Uint64(v)
	}
	if v := meta.Get(keyFloor); v != nil {
		s.log.floor = binary.BigEndian.Uint64(v)
	}
	// If this file is a copy, what followed it elsewhere must not have the times of what follows here.
	s.times.last = max(s.log.last, s.fineTime())
	s.file.floor, s.file.trimmed = s.log.floor, s.log.floor
	return tx.Bucket(bucketLog).ForEach(func(k, v []byte) error {
		var entry logEntry
		if err := bson.Unmarshal(slices.Clone(v), &entry); err != nil {
			return fmt.Errorf("log entry %x: %w", k, err)
		}
		e := &Event{
			TS: binary.BigEndian.Uint64(k), Kind: entry.Kind, Namespace: entry.Namespace,
			Key: entry.Key, Doc: entry.Doc, Session: entry.Session, TxnNumber: entry.TxnNumber,
			description: entry.Description,
		}
		s.log.events = append(s.log.events, e)
		s.log.charge(e)
		return nil
	})
}
