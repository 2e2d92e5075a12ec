package pull

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// gathered is the commands that the fetches of a process share: what one of them wants while a command
// is under way is part of the next.
type gathered struct {
	store    *store.Store
	controls *groupcommit.Queue[*reading]
	claims   *groupcommit.Queue[*claiming]
}

const (
	fetchesAtOnce = 1000 // that share a command
	sharedTime    = 20 * time.Second
)

func newGathered(s *store.Store) *gathered {
	g := &gathered{store: s}
	g.controls = groupcommit.New(fetchesAtOnce, g.readControl)
	g.claims = groupcommit.New(fetchesAtOnce, g.writeClaims)
	return g
}

// reading is one fetch's wish to read the control document.
type reading struct {
	doc  store.ControlDoc
	err  error
	done chan struct{}
}

// control reads the control document, later than it was asked for.
func (g *gathered) control(ctx context.Context) (store.ControlDoc, error) {
	r := &reading{done: make(chan struct{})}
	if err := g.controls.Put(ctx, r); err != nil {
		return store.ControlDoc{}, err
	}
	select {
	case <-r.done:
		return r.doc, r.err
	case <-ctx.Done():
		return store.ControlDoc{}, context.Cause(ctx)
	}
}

func (g *gathered) readControl(batch []*reading) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTime)
	defer cancel()
	doc, err := g.store.Control.Read(ctx)
	for _, r := range batch {
		r.doc, r.err = doc, err
		close(r.done)
	}
}

// claiming is the claims of one fetch.
type claiming struct {
	writes  []store.Write
	search  time.Duration
	written []store.Written
	err     error
	done    chan struct{} // closed when it is known what became of them
}

// won waits until it is known what became of the claims, and returns the tasks of those that were won.
func (c *claiming) won() (won []*model.Task) {
	<-c.done
	for i, w := range c.written {
		if w.Applied {
			won = append(won, c.writes[i].After)
		}
	}
	return won
}

// claim has claims carried out, as [store.Tasks.Writes] does, whether ctx ends meanwhile or not.
func (g *gathered) claim(ctx context.Context, writes []store.Write, search time.Duration) (*claiming, error) {
	c := &claiming{writes: writes, search: search, done: make(chan struct{})}
	return c, g.claims.Put(ctx, c)
}

// writeClaims writes the claims of a batch in one command. What a server refuses altogether because of
// one of them is written by each itself.
func (g *gathered) writeClaims(batch []*claiming) {
	ctx, cancel := context.WithTimeout(store.For(context.Background(), store.Claiming), sharedTime)
	defer cancel()
	var all []store.Write
	var search time.Duration
	for _, c := range batch {
		all = append(all, c.writes...)
		search = max(search, c.search)
	}
	written, err := g.store.Tasks.Writes(ctx, all, search)
	if err != nil && len(batch) > 1 && store.Final(err) && !store.Denied(err) {
		for _, c := range batch {
			c.written, c.err = g.store.Tasks.Writes(ctx, c.writes, c.search)
			close(c.done)
		}
		return
	}
	for _, c := range batch {
		c.written, c.err, written = written[:len(c.writes)], err, written[len(c.writes):]
		close(c.done)
	}
}
