// Package tasktypes is a process's copy of the documents of task_types.
package tasktypes

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Cache is the copy. It is safe for concurrent use; what it returns is not to be changed.
type Cache struct {
	store *store.Store

	mu      sync.RWMutex
	read    bool
	version int64         // of the control document when it was read
	checked clock.Instant // when the control document was last looked at by [Cache.Fresh]
	types   map[string]*model.TaskType
}

// New makes an empty copy.
func New(st *store.Store) *Cache { return &Cache{store: st} }

// Refresh reads the types again where the copy is not of that version of the control
// document. changed says whether it did.
func (c *Cache) Refresh(ctx context.Context, version int64) (changed bool, err error) {
	c.mu.RLock()
	current := c.read && c.version == version
	c.mu.RUnlock()
	if current {
		return false, nil
	}
	all, err := c.store.TaskTypes(ctx)
	if err != nil {
		return false, err
	}
	types := make(map[string]*model.TaskType, len(all))
	for _, t := range all {
		types[t.Code] = t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.version, c.types = true, version, types
	return true, nil
}

// MaxAge is how old the copy may be by which sends are filled in and commands judge.
const MaxAge = 2 * time.Second

// Fresh makes sure that the copy was compared with the control document within maxAge: for
// processes that do not read that document anyway.
func (c *Cache) Fresh(ctx context.Context, maxAge time.Duration) error {
	c.mu.RLock()
	fresh := c.read && c.checked.Since(c.store.Local()) < maxAge
	c.mu.RUnlock()
	if fresh {
		return nil
	}
	asked := clock.Read(c.store.Local())
	control, err := c.store.Control(ctx)
	if err != nil {
		return err
	}
	if _, err := c.Refresh(ctx, control.Types); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked = asked
	return nil
}

// Expire makes the next [Cache.Fresh] look: this process has just changed a type.
func (c *Cache) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked = clock.Instant{}
}

// Version changes with every change of any type that this process has read.
func (c *Cache) Version() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// Get is the document of a type; nil when it has none.
func (c *Cache) Get(code string) *model.TaskType {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.types[code]
}

// Options are what the type's document says to its tasks.
func (c *Cache) Options(code string) model.Options {
	if t := c.Get(code); t != nil {
		return t.Options
	}
	return model.Options{}
}

// Of are the types of a category, in no order.
func (c *Cache) Of(category string) (codes []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for code, t := range c.types {
		if t.Category == category {
			codes = append(codes, code)
		}
	}
	return codes
}
