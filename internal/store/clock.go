package store

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Clock estimates the database's time from readings of it and this machine's
// monotonic clock. The estimate never runs ahead of the database (apart from clock
// rates, which differ by a few milliseconds in the half minute between readings):
// a reading is taken as the time at which its answer arrived, although the server
// looked at its clock before that. So nothing starts early and no lease is taken early;
// the price is that leases are shorter by at most a round trip, see [Stamp].
//
// A reading says that the time is between what the server said and a round trip after that,
// and so does the estimate. What both allow is the new estimate: one slow answer among quick
// ones makes it no worse. Where they allow nothing in common, the reading counts.
type Clock struct {
	local clock.Clock

	mu      sync.Mutex
	read    bool
	at      clock.Instant // when the last answer arrived
	server  time.Time     // the least that it was then at the server
	err     time.Duration // the most by which it was later
	doubt   bool          // the next reading counts, whatever was known
	jumps   clock.Marks   // readings that contradicted the estimate, and by how much
	skipped time.Duration
	apart   time.Duration // by how much the machine's wall clock was ahead at the last reading
}

func newClock(local clock.Clock) *Clock { return &Clock{local: local} }

// Now is the database's time, cut to its milliseconds; zero before the first reading.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read {
		return time.Time{}
	}
	return c.now().Truncate(time.Millisecond)
}

func (c *Clock) now() time.Time {
	return c.server.Add(c.at.SinceMonotonic(c.local) + c.skipped)
}

// Error is by how much the estimate may lag: the round trip of a reading, or less.
func (c *Clock) Error() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stamp is a time to store, such as that from which a lease counts.
type Stamp struct {
	Now    time.Time     // the database's time, as [Clock.Now] estimates it
	Behind time.Duration // by how much that may lag: the estimates of others may not
	At     clock.Instant // when it was taken
}

// After returns the stamp with the latest of its time and those at which the tasks were sent, by the estimates
// of others: where these are right, they have passed. A time that the estimate here does not allow is
// not believed.
func (s Stamp) After(sent ...*model.Task) Stamp {
	most := s.Now.Add(s.Behind + 2*clockGrain) // both readings were cut to it
	for _, t := range sent {
		if t.CreatedAt.After(s.Now) && !t.CreatedAt.After(most) {
			s.Now = t.CreatedAt
		}
	}
	return s
}

// Stamp returns the time to store now.
func (c *Clock) Stamp() Stamp {
	at := clock.Read(c.local) // what comes between counts as passed
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stamp{Behind: c.err, At: at}
	if c.read {
		s.Now = c.now().Truncate(time.Millisecond)
	}
	return s
}

// Age is how long ago the last reading was, by the clock that says more. A reading
// that a sleep of the machine or a jump of its wall clock has made doubtful is old.
func (c *Clock) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read || c.at.Drift(c.local).Abs() > doubtful {
		return time.Hour
	}
	return c.at.Since(c.local)
}

// doubtful is a drift of this machine's clocks since a reading that no lease hides in its margin: the
// estimate goes by the monotonic clock, which stands still while the machine sleeps. Between two
// readings, clocks that are merely adjusted drift by less.
const doubtful = input.MinWorkerTimeout / 10

const (
	// clockRates is how fast two machines' clocks go apart: one part in so many.
	clockRates = 10_000
	// clockGrain is that of a reading, which is cut to it.
	clockGrain = time.Millisecond
)

// observe takes a reading: what the server said, and when it was asked.
func (c *Clock) observe(server time.Time, asked clock.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least, most := server, server.Add(asked.Since(c.local)) // the machine may have slept meanwhile
	if c.read {
		passed := c.at.SinceMonotonic(c.local)
		expected, apart := c.server.Add(passed), passed/clockRates
		low, high := expected.Add(-apart), expected.Add(c.err+apart)
		switch {
		case least.After(high.Add(clockGrain)) || low.After(most.Add(clockGrain)):
			c.jumps.Add(server.Sub(expected).Abs(), clock.Read(c.local))
		case !c.doubt:
			if low.After(least) {
				least = low
			}
			if high.Before(most) {
				most = high
			}
		}
	}
	c.read, c.doubt, c.server, c.at = true, false, least, clock.Read(c.local)
	c.err = max(most.Sub(least), 0)
	c.apart = c.local.Now().Round(0).Add(-asked.SinceMonotonic(c.local) / 2).Sub(server)
}

// Apart is by how much this machine's wall clock was ahead of the database's at the last reading, known to half of a
// round trip; negative = behind, false = there was none. Nothing goes by it: it is for people.
func (c *Clock) Apart() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apart, c.read
}

// Doubt makes the next reading count whatever was known: another server may have another
// time, by less than what would contradict.
func (c *Clock) Doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = true
}

// Jumped is how long ago a reading last contradicted the estimate by more than the size,
// by the monotonic clock; false when none did. A new primary may have another clock, or
// this machine slept.
func (c *Clock) Jumped(over time.Duration) (ago time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.jumps.Last(over)
	if !ok {
		return 0, false
	}
	return at.SinceMonotonic(c.local), true
}

// maxSkipped bounds all skips together: with what passes beside them they must fit a
// time.Duration.
const maxSkipped = 250 * 365 * 24 * time.Hour

// Skip moves the estimate forward for good: test databases only. It says false, and does
// nothing, when that would be further than 250 years in all.
func (c *Clock) Skip(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d > maxSkipped-c.skipped {
		return false
	}
	c.skipped += d
	return true
}

// ReadClock reads the database's clock for a process that has no workers document. It
// goes by a write, because what counts is the clock of the server that takes writes,
// not a router's. Index: _id.
func (s *Store) ReadClock(ctx context.Context) error {
	type reading struct {
		At time.Time `bson:"at"`
	}
	doc, asked, err := stampOne[reading](Outside(ctx), s.core, s.control, "clock", bson.D{d("$currentDate", bson.D{d("at", true)})})
	if err != nil {
		return explain(err, "reading the database's clock")
	}
	s.Clock.observe(doc.At, asked)
	return nil
}

// stampOne changes a document, which it makes where there is none, and returns it as it is then, with when the server
// was asked. The update sets a field to the server's time. It is no retryable write: a new primary would answer the
// second try of one with the document as the old primary has stored it, and the old one's time would pass for a new
// reading. After an error that may pass it is sent once more, as the driver does, and the time is that of the second
// try. Index: _id.
func stampOne[T any](ctx context.Context, s *core, coll *mongo.Collection, id string, update bson.D) (doc T, asked clock.Instant, err error) {
	for tries := 0; ; tries++ {
		asked = clock.Read(s.local)
		var reply struct {
			Value T `bson:"value"`
		}
		err = s.db.RunCommand(ctx, bson.D{
			d("findAndModify", coll.Name()), d("query", bson.D{d("_id", id)}), d("update", update), d("upsert", true), d("new", true),
			d("writeConcern", bson.D{d("w", "majority")}),
		}).Decode(&reply)
		passes := Unreachable(err) || IsDuplicate(err) // two first ones at once: the other one has made the document
		if tries > 0 || !passes || ctx.Err() != nil {
			return reply.Value, asked, err
		}
	}
}

// MaxClockAge is how old the reading may be by which a process stamps, pings or
// pre-empts. After a jump of the database's clock every process has noticed it by then.
const MaxClockAge = 2 * HeartbeatInterval

// FreshClock makes sure that the reading is no older than [MaxClockAge].
func (s *Store) FreshClock(ctx context.Context) error {
	if s.Clock.Age() < MaxClockAge {
		return nil
	}
	return s.ReadClock(ctx)
}

// Prepare makes sure that the schema fits, and that the database's clock is known.
func (s *Store) Prepare(ctx context.Context) error {
	if err := s.Ready(ctx); err != nil {
		return err
	}
	return s.FreshClock(ctx)
}
