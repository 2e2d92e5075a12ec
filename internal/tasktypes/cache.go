// Package tasktypes is a process's copy of the documents of task_types.
package tasktypes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Cache is the copy. It is safe for concurrent use; what it returns is not to be changed.
type Cache struct {
	store *store.Store

	mu      sync.RWMutex
	read    bool
	news    bool          // it has been read since the last [Cache.Refresh] told
	version int64         // of the control document when it was read
	checked clock.Instant // when the control document was last looked at by [Cache.Fresh]
	types   map[string]*model.TaskType
	unread  map[string]error // documents that cannot be read, and could not before
	again   *clock.Instant   // of the last read, where a document could not be read; else nil
}

// New makes an empty copy.
func New(st *store.Store) *Cache { return &Cache{store: st} }

// rereadUnread is how often the types are read again while one cannot be read: a person mends it
// as it was spoiled, by hand, and the log says so until then.
const rereadUnread = time.Minute

// Refresh reads the types again where the copy is not of that version of the control
// document. changed says whether the copy has changed since the last Refresh, also by [Cache.Fresh].
// A type whose document this release cannot read stays as it was read before; see [Cache.Unread]
// for where it was not.
func (c *Cache) Refresh(ctx context.Context, version int64) (changed bool, err error) {
	if err := c.refresh(ctx, version); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, c.news = c.news, false
	return changed, nil
}

func (c *Cache) refresh(ctx context.Context, version int64) error {
	c.mu.RLock()
	current := c.read && c.version == version && (c.again == nil || c.again.Since(c.store.Local()) < rereadUnread)
	c.mu.RUnlock()
	if current {
		return nil
	}
	asked := clock.Read(c.store.Local())
	all, unread, err := c.store.Types.List(ctx)
	if err != nil {
		return err
	}
	types := make(map[string]*model.TaskType, len(all))
	for _, t := range all {
		types[t.Code] = t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unread, c.again = nil, nil
	for _, u := range unread {
		if before := c.types[u.ID]; before != nil {
			types[u.ID] = before
		} else {
			if c.unread == nil {
				c.unread = map[string]error{}
			}
			c.unread[u.ID] = u.Err
		}
		c.again = &asked
	}
	c.read, c.news, c.version, c.types = true, true, version, types
	return nil
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
	control, err := c.store.Control.Read(ctx)
	if err != nil {
		return err
	}
	return c.Learn(ctx, control.Types, asked)
}

// Learn brings the copy to that version for a process that asked for the control document at
// that time. The copy is fresh from then on.
func (c *Cache) Learn(ctx context.Context, version int64, asked clock.Instant) error {
	if err := c.refresh(ctx, version); err != nil {
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

// Unread is an error for a type whose document is there and cannot be read: what it says,
// limits among them, is not known, so tasks of the type are neither sent nor claimed.
func (c *Cache) Unread(code string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.unread[code]; err != nil {
		return fmt.Errorf("the stored task type %s cannot be read: %w", code, err)
	}
	return nil
}

// Give gives a new task what a send of its type gives to its tasks. The error is that of [Cache.Unread].
func (c *Cache) Give(t *model.Task) error {
	if err := c.Unread(t.Type); err != nil {
		return err
	}
	lifecycle.TypeTask(t, c.Get(t.Type), t.CreatedAt)
	return nil
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
