package store

import (
	"cmp"
	"context"
	"slices"
)

// turn is a type or a scene that is to be counted.
type turn struct {
	round *int64 // of the last census that had time for it
	count func(context.Context) error
}

// takeTurns counts types and scenes while there is time.
func (c *census) takeTurns(ctx context.Context) error {
	slices.SortStableFunc(c.turns, func(a, b turn) int { return cmp.Compare(*a.round, *b.round) })
	for i, t := range c.turns {
		if c.over() {
			return nil
		}
		if err := t.count(ctx); err != nil {
			return err
		}
		if i > 0 && c.cut { // not all of it was counted: it is the first one of the next census
			return nil
		}
		*t.round = c.Round
	}
	return nil
}

// over says whether there is no time left to count anything. Then the census is not complete.
func (c *census) over() bool {
	over := c.s.local.Monotonic() > c.until
	c.cut = c.cut || over
	c.Complete = c.Complete && !over
	return over
}

// looking bounds a search for names to a quarter of the time that is left: most of it is for counts.
func (c *census) looking() (over func() bool) {
	now := c.s.local.Monotonic()
	until := now + (c.until-now)/4
	return func() bool {
		over := c.s.local.Monotonic() > until
		c.Complete = c.Complete && !over
		return over
	}
}
