package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// Validate compares the indexes of a frozen collection with its documents and
// returns what is wrong, nil for nothing.
func (c *Collection) Validate(ctx context.Context) (problems []string, err error) {
	type entry struct {
		index int
		Entry
	}
	want := map[entry]struct{}{}
	for it, n := c.Scan(), 0; it.Next(); n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return nil, ContextError(ctx)
		}
		rec := it.Item()
		if e := rec.Doc.Validate(); e != nil {
			problems = append(problems, fmt.Sprintf("record %d: %v", rec.ID, e))
			continue
		}
		for i, x := range c.Indexes {
			keys, multikey, e := x.Spec.Keys(rec.Doc)
			if e != nil || multikey&^x.multikey != 0 {
				problems = append(problems, fmt.Sprintf("record %d does not fit index %s: %v", rec.ID, x.Spec.Name, e))
			}
			for _, key := range keys {
				want[entry{i, Entry{string(key), rec.ID}}] = struct{}{}
			}
		}
	}
	for i, x := range c.Indexes {
		var last Entry
		for it := x.Scan(); it.Next(); {
			e := it.Item()
			if _, ok := want[entry{i, e}]; !ok {
				problems = append(problems, fmt.Sprintf("index %s has a key of record %d too many", x.Spec.Name, e.RID))
			}
			delete(want, entry{i, e})
			if x.Spec.Unique && e.Key == last.Key && e.RID != last.RID {
				problems = append(problems, fmt.Sprintf("unique index %s has the same key for records %d and %d", x.Spec.Name, last.RID, e.RID))
			}
			last = e
		}
	}
	for e := range want {
		problems = append(problems, fmt.Sprintf("index %s lacks a key of record %d", c.Indexes[e.index].Spec.Name, e.RID))
	}
	return problems, nil
}

// ValidateFile validates all collections of a file that nobody has open.
func ValidateFile(ctx context.Context, path string) (documents int, problems []string, err error) {
	if _, err := os.Stat(path); err != nil {
		return 0, nil, err
	}
	s, err := Open(Options{Path: path, Now: clock.System().Now})
	if err != nil {
		return 0, nil, err
	}
	s.Snapshot().Each(func(c *Collection) bool {
		var found []string
		found, err = c.Validate(ctx)
		documents += c.Len()
		for _, p := range found {
			problems = append(problems, c.Namespace+": "+p)
		}
		return err == nil
	})
	return documents, problems, errors.Join(err, s.Close())
}

// Compact rewrites the file at path without the space that deleted documents
// left. Nobody may have it open. The old file stays until the new one is whole.
func Compact(path string) (before, after int64, err error) {
	file, err := filepath.EvalSymlinks(path) // or the link would be replaced, and not what it leads to
	if err != nil {
		return 0, 0, fmt.Errorf("compact %s: %w", path, err)
	}
	path = file
	if _, err := os.Stat(path); err != nil { // openBolt would make it
		return 0, 0, err
	}
	src, err := openBolt(path)
	if err != nil {
		return 0, 0, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return 0, 0, errors.Join(err, src.Close())
	}
	temp := path + ".compact"
	defer func() {
		if e := os.Remove(temp); err == nil && !errors.Is(e, os.ErrNotExist) {
			err = e
		}
	}()
	_ = os.Remove(temp) // what a killed one left; src is locked, so nobody is at it
	dst, err := bolt.Open(temp, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		return 0, 0, errors.Join(err, src.Close())
	}
	const txSize = 16 << 20
	err = guard(path, func() error { return bolt.Compact(dst, src, txSize) })
	err = errors.Join(err, dst.Sync(), dst.Close())
	if err == nil {
		err = passOn(st, temp)
	}
	if err == nil {
		// The old one is locked until the new one has its place.
		err = os.Rename(temp, path)
	}
	if err == nil {
		err = syncPath(filepath.Dir(path))
	}
	if err = errors.Join(err, src.Close()); err != nil {
		return 0, 0, fmt.Errorf("compact %s: %w", path, err)
	}
	now, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	return st.Size(), now.Size(), nil
}

// passOn gives a new file the owner and the mode of the old one: whoever could open that
// must be able to open this.
func passOn(old os.FileInfo, path string) error {
	if err := chownAs(old, path); err != nil {
		return fmt.Errorf("give the new file the owner of the old one, which stays as it is: %w", err)
	}
	if err := os.Chmod(path, old.Mode()); err != nil { // after chown, which may clear bits
		return err
	}
	return syncPath(path)
}
