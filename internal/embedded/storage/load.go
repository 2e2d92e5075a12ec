package storage

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

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
	err = db.View(func(tx *bolt.Tx) error {
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
	})
	if err != nil {
		_ = db.Close() // the first error says more
		return fmt.Errorf("read %s: %w", path, err)
	}
	if s.nextRID > largeFile {
		forgetPages(db)
		debug.FreeOSMemory() // what reading took
	}
	return nil
}

// largeFile is from how many documents on memory is given back.
const largeFile = 100_000

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
		if c.docs.Len()%largeFile == largeFile-1 {
			forgetPages(s.file.db)
		}
		s.nextRID = max(s.nextRID, rid)
		c.docs.Load(Record{ID: rid, Doc: doc})
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
	var build sync.WaitGroup
	failed := make([]error, len(c.Indexes))
	for i, x := range c.Indexes {
		build.Go(func() { failed[i] = c.build(x) })
	}
	build.Wait()
	for i, x := range c.Indexes {
		if failed[i] != nil {
			return fmt.Errorf("index %s of %s: %w", x.Spec.Name, entry.Namespace, failed[i])
		}
	}
	s.nextColl = max(s.nextColl, id)
	s.live[entry.Namespace] = c
	s.changed[entry.Namespace] = struct{}{}
	return nil
}

func (s *Store) loadSession(k, v []byte) error {
	r, err := decodeRetry(slices.Clone(v))
	if err != nil {
		return fmt.Errorf("session %x: %w", k, err)
	}
	s.retries[string(k)] = r
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
	s.lastTS = s.log.last
	s.file.floor, s.file.trimmed = s.log.floor, s.log.floor
	return tx.Bucket(bucketLog).ForEach(func(k, v []byte) error {
		var entry logEntry
		if err := bson.Unmarshal(slices.Clone(v), &entry); err != nil {
			return fmt.Errorf("log entry %x: %w", k, err)
		}
		e := &Event{
			TS: binary.BigEndian.Uint64(k), Kind: entry.Kind, Namespace: entry.Namespace, UUID: entry.UUID,
			Key: entry.Key, Doc: entry.Doc, Wall: entry.Wall, Session: entry.Session, TxnNumber: entry.TxnNumber,
			description: entry.Description,
		}
		s.log.events = append(s.log.events, e)
		s.log.charge(e)
		return nil
	})
}
