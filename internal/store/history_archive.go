package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The archiver moves a batch of ended tasks in three steps: it reads, it copies, it
// deletes what is still as it was read (id, generation, rev, ended, nothing to follow).
// Any number of archivers may do so at once, and die anywhere. What can come in between:
//
//   - A new life begins (sent again, retried). Whoever begins it makes the same copy first,
//     finds ours, or replaces it where the life had changed since we read it; our delete
//     matches nothing. The copy is right: that life is over.
//   - The life changes although it has ended: its callback was delivered after all
//     ([lifecycle.Delivered]). That raises the rev, so our delete
//     matches nothing, and our copy is premature: it says Completed of a task that is
//     Success. We take it back (tidy), by its rev, because by then somebody may have made
//     the right one. Where we die before that, the next copy of the life replaces it: a
//     copy of a higher rev always does, one of a lower or an equal never. One of an equal rev
//     only has it kept for longer. Until then nobody
//     sees it: where a life is among the tasks, readers drop its copy.
//   - An outbox entry is removed. That does not raise the rev and concerns neither us, who
//     leave tasks with an outbox alone, nor the copy of a new life's beginner, whose
//     entries are the history's own from then on: an entry that was removed among the
//     tasks only is carried out again, which its id makes harmless.
//   - Another archiver moves the same task, and its key is sent again: that life has a later
//     generation than any we read, so our delete cannot meet it, although its rev starts
//     at 1 again. (A task stays for a minute after its end at least, so what we read is a
//     minute older than anything that may replace it.)
//   - The server that we read from fails over and has never heard of the end. So we read
//     what a majority has.
//
// To take a premature copy back is safe: it is deleted by its rev, once the life was seen
// among the tasks with a higher one, and a copy of that rev is then nobody's to rely on.
// Whoever made it, or found it made, deletes by the same rev and matches nothing either. Who
// found it made and has the life with a higher rev replaces it, or makes the copy where it
// was taken back meanwhile.

// The size of a batch. A larger one saves round trips, which cost little, and holds up
// the writes of others for longer.
const (
	perArchive      = 500
	archiveMaxBytes = 8 << 20 // the copies are one command
	// putOff is when a task is looked at again that is due to move and may not.
	putOff = time.Hour
	// copyTime bounds the copying of a batch.
	copyTime = 5 * time.Second
)

// Archived is what became of a batch of tasks that were due to move to the history.
type Archived struct {
	Moved  int       // to the history
	PutOff int       // looked at again in an hour: something must still follow their end, or they cannot be copied
	More   bool      // there are more
	First  time.Time // when the first of them was due to move; zero when there was none
	Last   time.Time // the last; the next batch begins there
}

// ArchiveSince is where a run of the archiver begins that need not find stragglers, which
// follow some seconds later (see head). Zero = ever.
func (s *History) ArchiveSince() time.Time {
	return s.head(IndexArchive).begin(s.Clock.Now(), s.local.Monotonic()).from
}

// Archive moves one batch of the tasks whose time has come since the given one (zero =
// ever) to the history. The caller repeats it with Last while there are More: so the next
// batch does not walk over the deleted keys of this one. Indexes: archive; _id of both.
func (s *History) Archive(ctx context.Context, since time.Time) (Archived, error) {
	var a Archived
	keep, err := s.Retention(ctx) // what somebody has just set applies at once
	if err != nil {
		return a, err
	}
	now := s.Clock.Now()
	docs, more, err := s.archivable(ctx, since, now)
	if err != nil || len(docs) == 0 {
		return a, err
	}
	a.More, a.First, a.Last = more, archiveTime(docs[0]), archiveTime(docs[len(docs)-1])
	var move []*life
	var stay []bson.Raw
	for _, raw := range docs {
		if !mayMove(raw, now) {
			stay = append(stay, raw)
			continue
		}
		l, err := newLife(raw, now, keep)
		if err != nil {
			s.cannotMove(raw, err)
			stay = append(stay, raw)
			continue
		}
		move = append(move, l)
	}
	copied, refused, err := s.copyLives(ctx, move)
	if err != nil {
		return a, err
	}
	for l, err := range refused {
		s.cannotMove(l.task, err)
		stay = append(stay, l.task)
	}
	if a.PutOff, err = s.putOff(ctx, stay, now); err != nil {
		return a, err
	}
	a.Moved, err = s.deleteMoved(ctx, copied)
	return a, err
}

// cannotMove tells the operator of a document that cannot be copied to the history.
func (s *History) cannotMove(raw bson.Raw, err error) {
	s.about(s.tasks, raw, err).Msg("a task cannot move to the history; other tasks are not affected")
}

func archiveTime(raw bson.Raw) time.Time {
	at, _ := raw.Lookup("archive_at").TimeOK()
	return at.UTC()
}

// archivable reads what is due to move, the longest due first. Index: archive.
func (s *History) archivable(ctx context.Context, since, now time.Time) (docs []bson.Raw, more bool, err error) {
	h := s.head(IndexArchive)
	l := unboundedLook(now, s.local.Monotonic())
	l.from = since
	due := l.upTo(now)
	size := 0
	err = readEach(ctx, s.durable(s.tasks), "looking for tasks to archive", bson.D{d("archive_at", due), present}, options.Find().
		SetSort(bson.D{d("archive_at", 1)}).SetHint(IndexArchive).SetLimit(perArchive).SetBatchSize(perArchive), func(doc bson.Raw) bool {
		if size += len(doc) + 200; size > archiveMaxBytes && len(docs) > 0 {
			more = true
		} else {
			docs = append(docs, bytes.Clone(doc))
		}
		return !more
	})
	if err != nil {
		return nil, false, err
	}
	var first time.Time
	if len(docs) > 0 {
		first = archiveTime(docs[0])
	}
	h.end(l, first)
	return docs, more || len(docs) == perArchive, nil
}

// mayMove says whether the document is what archive_at promises. What is not was written
// by somebody else, by a later release, or waits for what must follow.
func mayMove(raw bson.Raw, now time.Time) bool {
	status, _ := raw.Lookup("status").StringValueOK()
	finished, ok := raw.Lookup("finished_at").TimeOK()
	return lifecycle.Archivable(model.Status(status)) && ok && !finished.Add(lifecycle.MinRetention).After(now) &&
		raw.Lookup("outbox_at").Type == 0
}

// putOff makes room in the index for what can move. It decides nothing, so it does not
// raise the rev. What somebody else holds is found again. Index: _id.
func (s *History) putOff(ctx context.Context, docs []bson.Raw, now time.Time) (done int, err error) {
	const doing = "postponing tasks that cannot be archived yet"
	due, set := bson.D{d("archive_at", bson.D{d("$lte", now)})}, bson.D{d("$set", bson.D{d("archive_at", now.Add(putOff))})}
	guard, later := appendFields(due), encoded(set)
	var statements []statement // one for each: of several ids the server might prefer another index
	var foreign bson.A         // ids that no task has
	for _, raw := range docs {
		if id, ok := raw.Lookup("_id").StringValueOK(); ok {
			statements = append(statements, statement{ids: []string{id}, guard: guard, update: later})
		} else {
			foreign = append(foreign, raw.Lookup("_id"))
		}
	}
	if len(statements) > 0 {
		x, err := s.send(ctx, s.tasks, "writing task", statements, Patience)
		if done = x.matched; err != nil {
			return done, explain(err, doing)
		}
	}
	if len(foreign) == 0 {
		return done, nil
	}
	limited, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	res, err := s.tasks.UpdateMany(limited, append(bson.D{d("_id", in(foreign))}, due...), set, options.UpdateMany().SetHint("_id_"))
	switch {
	case ctx.Err() == nil && ranOut(err): // somebody else holds one
		return done, nil
	case err != nil:
		return done, explain(err, doing)
	}
	return done + int(res.MatchedCount), nil
}

// copyLives copies lives to the history. A copy that is there stays unless it was made of
// an earlier rev, but is kept as long as a new one. Where somebody's transaction holds the place of one, which happens only
// to who begins a new life in a transaction, the batch is tried again later. A life whose copy
// the server refuses, because it would become too large, say, keeps no other from the history.
// Index: _id of the history.
func (s *History) copyLives(ctx context.Context, lives []*life) (copied []*life, refused map[*life]error, err error) {
	if len(lives) == 0 {
		return nil, nil, nil
	}
	call, cancel := context.WithTimeout(ctx, copyTime+answerPatience)
	defer cancel()
	limited := ownTimeLimit{call}
	failed, err := s.writeCopies(limited, "insert", "documents", collect(lives, func(l *life) bson.Raw { return l.copied }))
	if err != nil {
		return nil, nil, err
	}
	refused = map[*life]error{}
	// A copy that is as new is kept for longer first: then it does not expire before it counts.
	// Between the commands the earlier copy may be taken back, so the replacement is made where there is none. The
	// place of one that is as new is taken. Once more, for an earlier one that came at the same moment.
	for again, tries := lives, 2; ; {
		var there []*life
		for i, l := range again {
			switch why, bad := failed[i]; {
			case bad && why.Code == duplicateKey:
				there = append(there, l)
			case bad:
				refused[l] = why
			}
		}
		if again = there; len(again) == 0 || tries == 0 {
			break
		}
		tries--
		anew := collect(again, func(l *life) bson.D {
			same, anew := keptAnew(l)
			return bson.D{d("q", same), d("u", anew)}
		})
		if failed, err = s.writeCopies(limited, "update", "updates", anew); err != nil {
			return nil, nil, err
		}
		for i, why := range failed {
			refused[again[i]] = why
		}
		replace := collect(again, func(l *life) bson.D { return bson.D{d("q", olderCopy(l)), d("u", l.copied), d("upsert", true)} })
		if failed, err = s.writeCopies(limited, "update", "updates", replace); err != nil {
			return nil, nil, err
		}
	}
	copied = slices.DeleteFunc(slices.Clone(lives), func(l *life) bool { return refused[l] != nil })
	return copied, refused, nil
}

// writeCopies carries out a command on the history, and returns what the server says of single
// elements, by their index, that it has not carried out.
func (s *History) writeCopies(ctx context.Context, verb, elements string, list any) (failed map[int]mongo.WriteError, err error) {
	err = timeUp(ctx, s.db.RunCommand(ctx, bson.D{
		d(verb, s.history.Name()), d(elements, list), d("ordered", false),
		d("writeConcern", bson.D{d("w", "majority")}), d("maxTimeMS", ms(copyTime)),
	}).Err())
	var we mongo.WriteException
	if !errors.As(err, &we) || we.WriteConcernError != nil ||
		slices.ContainsFunc(we.WriteErrors, func(e mongo.WriteError) bool { return ofDeployment(e.Code) }) {
		return nil, explain(err, "copying tasks to the history")
	}
	failed = map[int]mongo.WriteError{}
	for _, e := range we.WriteErrors {
		failed[e.Index] = e
	}
	return failed, nil
}

// deleteMoved deletes what has been copied and is as it was. What somebody else holds
// stays, and is found again. Index: _id.
func (s *History) deleteMoved(ctx context.Context, lives []*life) (deleted int, err error) {
	if len(lives) == 0 {
		return 0, nil
	}
	// Of equal rev are one statement; behind a router each id is its own, sent to one shard.
	var groups [][]*life
	at := map[int64]int{}
	for _, l := range lives {
		i, ok := at[l.rev]
		if !ok {
			i = len(groups)
			at[l.rev] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	archivable := statuses(lifecycle.Archivable)
	deletes := make([]statement, len(groups))
	for i, g := range groups {
		ids, newest := make([]string, len(g)), int64(0)
		for j, l := range g {
			ids[j], newest = l.taskID, max(newest, l.generation)
		}
		// The bound on the generation is exact for the whole group: see above.
		deletes[i] = statement{ids: ids, guard: appendFields(bson.D{d("rev", g[0].rev), d("generation", bson.D{d("$lte", newest)}),
			d("status", in(archivable)), d("outbox_at", absent)})}
	}
	x, err := s.send(ctx, s.tasks, "deleting task", deletes, Patience)
	if err != nil {
		return 0, explain(err, "deleting tasks that are in the history now")
	}
	if x.exact && x.matched == len(lives) {
		return x.matched, nil
	}
	return x.matched, s.tidy(ctx, lives)
}

// tidy takes back the copies of lives that went on. Indexes: _id of both.
func (s *History) tidy(ctx context.Context, lives []*life) error {
	tasks, err := s.stillTasks(ctx, collect(lives, func(l *life) string { return l.taskID }))
	if err != nil {
		return err
	}
	premature := slices.DeleteFunc(slices.Clone(lives), func(l *life) bool {
		now, there := tasks[l.taskID]
		rev, _ := now.Lookup("rev").AsInt64OK()
		return !there || keyOf(now).generation != l.generation || rev <= l.rev
	})
	_, err = bulk(ctx, s.core, s.history, "removing early history record", premature, func(l **life) change {
		return change{id: (*l).id(), guard: bson.D{d("rev", (*l).rev)}}
	})
	return err
}
