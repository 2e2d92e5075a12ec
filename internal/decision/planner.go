package decision

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Planner knows what to decide about documents of type D, a pointer.
type Planner[D any] interface {
	// Kind is the kind of the outbox entries that tell it of the ends of its tasks.
	Kind() string

	// DueAt is when something about the document is to be decided; zero = never.
	DueAt(d D) time.Time
	// PlannedBytes is about how large is what the document plans, and Tasks are those of it that
	// are to be sent.
	PlannedBytes(d D) int
	Tasks(d D) []*model.Task
	// Trace is the span that led to the document, which its tasks belong to unless they have one of their
	// own; nil = none.
	Trace(d D) *model.Trace

	// Of is the id of the document that a task belongs to; "" = the end of the task changes nothing.
	Of(life store.OutboxLife) string
	// MustKnow are the tasks of a document whose ends make a difference to what is decided about
	// it now.
	MustKnow(d D) (taskIDs []string)
	// Keep stores what is kept of ends, whatever is decided about them. To do it twice is the same as
	// once. It bounds how long it takes: there may be much to keep.
	Keep(ctx context.Context, cases []Case[D]) error
	// Decide decides about documents. It writes nothing. There is one answer for each case.
	Decide(ctx context.Context, cases []Case[D], now time.Time) ([]Answer[D], error)
	// Complete gives a decision what it needs to be written. An error concerns this decision
	// alone: it cannot be carried out by this process.
	Complete(w store.Decision[D], now time.Time) error
	// Finish carries out the rest of what documents plan, once their tasks are sent. To do it
	// twice is the same as once. unsent holds documents, by id, with a task that could not be
	// sent. They keep their plans. So do those in held, which gives the reason.
	Finish(ctx context.Context, docs []D, unsent map[string]error) (held map[string]error, err error)
	// Sweep looks for what nobody will tell, every few minutes in one engine of the fleet.
	Sweep(ctx context.Context) error
}

// Case is a document about which something may have to be decided.
type Case[D any] struct {
	Doc  D
	Ends []store.OutboxLife // of its tasks, not told to it yet, the earliest first
	Past []store.OutboxLife // ends of lives after which a new one began: they decide nothing
	Due  bool               // it is due, and it is this engine's turn

	drop   bool // what the stored document plans is carried out
	recent bool // Doc is what this engine remembers
}

// Answer is what is decided in a [Case].
type Answer[D any] struct {
	After   D
	Changed bool  // After is to be written
	Told    int   // of how many of the ends After knows, from the first on
	Err     error // nothing can be decided about this document, by this process
}

// Documents is the collection of what a [Planner] decides about.
type Documents[D any] interface {
	// ID is the document's id, and PlanIDs names what it plans.
	ID(d D) string
	PlanIDs(d D) []string
	// PlannedAt is since when something planned waits to be carried out; zero = there is nothing.
	PlannedAt(d D) time.Time
	// WithoutPlans is a copy of the document from which everything planned is removed.
	WithoutPlans(d D) D
	// Mark gives a decision the mark. One that was marked before keeps its mark: it may have been written
	// although it was reported as held.
	Mark(w store.Decision[D], mark string)
	// ByIDs reads documents. One that is there and cannot be read is nil.
	ByIDs(ctx context.Context, ids []string) (map[string]D, error)
	// Planned finds documents with plans of before the given time, the oldest first.
	Planned(ctx context.Context, before time.Time, skip, limit int) ([]D, []store.Unreadable, error)
	// Write applies decisions to documents that still have the rev that was read. refused[i] is
	// why the server refuses a decision. An error means that nothing is known of any.
	Write(ctx context.Context, decisions []store.Decision[D]) (applied []bool, refused map[int]error, err error)
	// Applied looks which decisions were applied and are the last ones.
	Applied(ctx context.Context, decisions []store.Decision[D]) ([]bool, error)
	// Stays reports whether a majority has the document as it was read.
	Stays(ctx context.Context, doc D) (bool, error)
	// CarriedOut removes what the given documents plan. [store.ErrHeld] when another client holds some
	// of them, and how many; the others are done.
	CarriedOut(ctx context.Context, docs []D) (held int, err error)

	// Questions are those of a look.
	Questions(look store.Look[D]) []store.Question
}
