package store

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Writes of a document that an open transaction has touched wait until that transaction ends,
// a minute or more. So each command carries a short time limit. If it is exceeded, the ids are
// divided and sent again, some parts at a time, until the document stands alone. Answered
// parts count at once. The search is bounded, and callers that must not wait skip it.
const (
	// fanout and atOnce bound the parts of a search: a thousand ids are three levels.
	fanout = 16
	atOnce = 8
	// Patience bounds the search if nothing else waits for it.
	Patience = time.Second
	// stalledParts is how many parts must run out of time, and none be answered, for the
	// server to be suspected: if it is slow, dividing further would only slow it down more.
	stalledParts = 4
	// rememberedWhole is the size of a part that is not divided further when the time is
	// over, and yet known: its ids are probed one by one from then on.
	rememberedWhole = 100
)

// batch is one call of [Store.send].
type batch struct {
	s       *core
	coll    *mongo.Collection
	doing   string // "writing task"
	sharded bool
	alone   bool // all documents are suspects: the caller waits for no others
	inOrder bool // one command goes out after the other, and none after one that was not carried out
	stuck   bool // in order: a command was not

	mu    sync.Mutex
	x     executed
	worst error
	begun bool // a part of some command may be carried out
}

// execute sends statements about tasks, see [Store.send].
func (s *core) execute(ctx context.Context, statements []statement, search time.Duration) (executed, error) {
	return s.send(ctx, s.tasks, "writing task", statements, search)
}

// send executes statements. It leaves out held documents and names them in the result. search
// bounds the time for finding held documents that are not known yet. Without it every document
// that shared a command with a held one counts as held. An error is that of the database for at
// least one statement; the result is valid beside it. It has class [Retry] only if no command began.
//
// Behind a router counts are not reliable. So no command is ever clean there, and each
// statement names one id.
func (s *core) send(ctx context.Context, coll *mongo.Collection, doing string, statements []statement, search time.Duration) (executed, error) {
	t, err := s.Topology(ctx)
	if err != nil {
		return executed{}, err
	}
	b := &batch{s: s, coll: coll, doing: doing, sharded: t.Sharded}
	size := maxStatementIDs
	if t.Sharded {
		size = 1
	}
	others, probes, waiting := s.held.apart(coll, statements, s.local)
	b.alone = len(others) == 0
	for _, id := range waiting {
		b.leaveOut(id)
	}
	late := b.sendAll(ctx, spread(commands(others, size)))
	if search > 0 || len(others) == 0 {
		b.isolate(ctx, late, commandsOf(probes), s.local.Monotonic()+search)
	} else {
		for _, c := range append(late, commandsOf(probes)...) {
			c.each(b.leaveOut)
		}
	}
	if ids := countIDs(statements); b.sharded || b.x.matched < ids { // otherwise all are done
		b.doubt(repeated(statements, ids))
	}
	b.x.clean, b.x.exact = len(b.x.unsure) == 0, !b.sharded
	return b.x, b.err()
}

// insertInOrder is [core.send] for inserts of which none is to be seen before those in front of it. What comes after a
// held document is not sent and counts as held.
func (s *core) insertInOrder(ctx context.Context, coll *mongo.Collection, doing string, inserts []statement, search time.Duration) (executed, error) {
	t, err := s.Topology(ctx)
	if err != nil {
		return executed{}, err
	}
	b := &batch{s: s, coll: coll, doing: doing, sharded: t.Sharded, inOrder: true}
	late := b.sendAll(ctx, commands(inserts, 1))
	b.isolate(ctx, late, nil, s.local.Monotonic()+search)
	b.x.clean, b.x.exact = len(b.x.unsure) == 0, !b.sharded
	return b.x, b.err()
}

// atOnce is how many of the commands go out at the same time.
func (b *batch) atOnce(commands, most int) int {
	if b.inOrder {
		most = 1
	}
	return min(commands, most)
}

// sendAll sends commands, those of many statements several at a time, and returns what of
// them ran out of time. One document that ran out of time alone is held.
func (b *batch) sendAll(ctx context.Context, all []command) (late []command) {
	var mu sync.Mutex
	one := func(c command) {
		if b.inOrder && b.stuck {
			c.each(b.leaveOut)
			return
		}
		limit := beforeEnd(ctx, b.s.pace.limit(c.ids, c.bytes(), c.parts[0].insert != nil), commandShare)
		slow, err := b.sendOnce(ctx, c, limit)
		if b.inOrder {
			b.stuck = err != nil || slow.ids > 0
		}
		switch b.failed(err); slow.ids {
		case 0:
		case 1:
			b.isHeld(&slow, limit)
		default:
			mu.Lock()
			defer mu.Unlock()
			late = append(late, slow)
		}
	}
	for len(all) > 0 {
		var sent sync.WaitGroup
		n := b.atOnce(len(all), statementsAtOnce)
		for _, c := range all[1:n] {
			sent.Go(func() { one(c) })
		}
		one(all[0])
		sent.Wait()
		all = all[n:]
	}
	return late
}

// commandsOf makes each statement a command.
func commandsOf(statements []statement) []command {
	out := make([]command, len(statements))
	for i, st := range statements {
		out[i] = command{parts: []statement{st}, ids: len(st.ids), encoded: [][]byte{st.encode(st.ids)}}
	}
	return out
}

// isolate sends the parts of commands that ran out of time, then the parts of those parts
// that did, until each held document stands alone or the time is over. It also probes
// suspects, which stand alone already.
func (b *batch) isolate(ctx context.Context, late, probes []command, until time.Duration) {
	if len(late)+len(probes) == 0 {
		return
	}
	wave := probes
	for _, c := range late {
		wave = append(wave, c.split(fanout, b.sharded)...)
	}
	var mu sync.Mutex
	var next []command
	found, answered, ranOut := false, 0, 0
	answers := sync.OnceValue(func() bool { return b.serverAnswers(ctx) })
	stalled := func() bool {
		mu.Lock()
		suspected := answered == 0 && ranOut >= stalledParts && !b.s.pace.slowest()
		mu.Unlock()
		return suspected && !answers()
	}
	one := func(c command, first bool) {
		if b.inOrder && b.stuck {
			c.each(b.leaveOut)
			return
		}
		if b.inOrder {
			b.stuck = true // unless it is answered
		}
		if c.ids > 1 && stalled() {
			c.each(b.leaveOut)
			return
		}
		if ctx.Err() != nil || b.broken() || !first && b.s.local.Monotonic() > until {
			b.unresolved(&c)
			return
		}
		limit := beforeEnd(ctx, b.partLimit(&c), partShare)
		slow, err := b.sendOnce(ctx, c, limit)
		b.failed(err)
		mu.Lock()
		defer mu.Unlock()
		if b.inOrder {
			b.stuck = err != nil || slow.ids > 0
		}
		if c.ids > 1 {
			if slow.ids == 0 {
				answered++
			} else {
				ranOut++
			}
		}
		switch {
		case slow.ids == 1:
			b.isHeld(&slow, limit)
			found = true
		case slow.ids > 1:
			next = append(next, slow.split(fanout, b.sharded)...)
		}
	}
	for level := 0; len(wave) > 0; level++ {
		b.stuck = false // in order, the wave is the parts of the command that was
		queue := make(chan command, len(wave))
		for _, c := range wave {
			queue <- c
		}
		close(queue)
		var senders sync.WaitGroup
		for i := range b.atOnce(len(wave), atOnce) {
			senders.Go(func() {
				first := level == 0 && i == 0 // so that each call gets on
				for c := range queue {
					one(c, first)
					first = false
				}
			})
		}
		senders.Wait()
		wave, next = next, nil
	}
	if len(late) > 0 && !found {
		b.s.pace.slow() // no document is held, as far as is known; writes may be slow though others are not
	}
}

// serverAnswers reports whether the server carries out an update of no document within the time of a
// part. If it does, and no part was answered, other clients may hold documents of every part.
func (b *batch) serverAnswers(ctx context.Context) bool {
	none := commandsOf([]statement{{ids: []string{""}, guard: appendFields(nil), update: encoded(bson.D{d("$unset", bson.D{d("none", "")})})}})[0]
	limit := beforeEnd(ctx, b.s.pace.partLimit(none.ids, none.bytes()), partShare)
	bounded, cancel := context.WithTimeout(naming(ctx, 0), limit+answerPatience)
	defer cancel()
	_, err := b.run(ownTimeLimit{bounded}, none, limit)
	return err == nil
}

// answered takes in the answer of a command: where it is clean, all ids are done, but for [repeated] ones.
func (b *batch) answered(c *command, clean bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if clean {
		if len(b.x.unsure) > 0 {
			c.each(func(id string) { delete(b.x.unsure, id) })
		}
		return
	}
	if b.x.unsure == nil {
		b.x.unsure = make(map[string]bool, c.ids)
	}
	c.each(func(id string) { b.x.unsure[id] = true })
}

// countIDs is how many ids the statements have.
func countIDs(statements []statement) (ids int) {
	for i := range statements {
		ids += len(statements[i].ids)
	}
	return ids
}

// repeated returns the ids that several updates name, such as two claims or two steps of a task. If one of these updates is
// done, the others may not be. For inserts and upserts the server's answer names those that are not done.
func repeated(statements []statement, n int) (ids []string) {
	seen := make(map[string]bool, n)
	for i := range statements {
		if statements[i].stores() || statements[i].update == nil {
			continue
		}
		for _, id := range statements[i].ids {
			if seen[id] {
				ids = append(ids, id)
			}
			seen[id] = true
		}
	}
	return ids
}

// doubt makes ids unsure, whatever the answers say. All commands must have been answered.
func (b *batch) doubt(ids []string) {
	if b.x.unsure == nil && len(ids) > 0 {
		b.x.unsure = make(map[string]bool, len(ids))
	}
	for _, id := range ids {
		b.x.unsure[id] = true
	}
}

func (b *batch) matched(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.x.matched += n
}

// inserted records which documents of inserts and upserts were not refused: those are stored. The
// count of an update does not identify its documents.
func (b *batch) inserted(c *command, failed map[int]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, st := range c.parts {
		if st.stores() && !failed[i] {
			delete(b.x.unsure, st.ids[0])
		}
	}
}

// ranOut records which documents were in a command of inserts that ran out of time.
func (b *batch) ranOut(c *command) {
	if c.ids == 0 || c.parts[0].insert == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.x.late == nil {
		b.x.late = map[string]bool{}
	}
	c.each(func(id string) { b.x.late[id] = true })
}

// existed records that the key of an insert exists.
func (b *batch) existed(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.x.exists == nil {
		b.x.exists = map[string]bool{}
	}
	b.x.exists[id] = true
	delete(b.x.unsure, id)
}

func (b *batch) refuse(id string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.x.refused == nil {
		b.x.refused = map[string]error{}
	}
	b.x.refused[id] = err
}

// leaveOut records that nothing was written for the id, as far as is known.
func (b *batch) leaveOut(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.x.held == nil {
		b.x.held = map[string]bool{}
	}
	if b.x.unsure == nil {
		b.x.unsure = map[string]bool{}
	}
	b.x.held[id], b.x.unsure[id] = true, true
}

// partLimit is the time limit of a part, or of a probe. A probe of a document that is no task, and for
// which nothing else waits, has twice the time that was too short before: perhaps only the server is
// slow. Any other has as long as before, up to mostPart.
func (b *batch) partLimit(c *command) time.Duration {
	limit := b.s.pace.partLimit(c.ids, c.bytes())
	if c.ids > 1 {
		return limit
	}
	failed := b.s.held.failed(b.coll, c.parts[0].ids[0])
	if b.alone && b.coll.Name() != b.s.tasks.Name() {
		return max(limit, min(2*failed, mostAlone))
	}
	return max(limit, min(failed, mostPart))
}

// isHeld records that a command of one document ran out of time.
func (b *batch) isHeld(c *command, limit time.Duration) {
	id := c.parts[0].ids[0]
	b.s.held.note(b.coll, id, limit, b.s.local)
	b.leaveOut(id)
}

// unresolved leaves out a part for which there was no time. Its ids are probed one by one from
// now on, unless they are many. So the next call does not start from the beginning.
func (b *batch) unresolved(c *command) {
	c.each(func(id string) {
		if c.ids <= rememberedWhole && !b.broken() {
			b.s.held.suspect(b.coll, id, b.s.local)
		}
		b.leaveOut(id)
	})
}

// failed records an error; the call returns the worst of several.
func (b *batch) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && (b.worst == nil || Classify(err) > Classify(b.worst)) {
		b.worst = err
	}
}

// err is the worst error of the call.
func (b *batch) err() error {
	if b.begun && Classify(b.worst) == Retry {
		return &partError{b.worst}
	}
	return b.worst
}

// mayBegin notes what the answer of a command says of the others: a primary that steps down refuses those that come later.
func (b *batch) mayBegin(c *command, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = b.begun || c.mayBeDone(err)
}

func (b *batch) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.worst != nil
}
