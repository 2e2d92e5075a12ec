package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The collection permits holds the permits of executions: one document for each that is
// taken, named by what it is of and its number, so that one name is had once. Besides,
// "wait/" documents name the keys that tasks are held back for.

// LimitOf names what has a number of permits: a type, or a limit_key of it.
type LimitOf struct{ Type, Key string }

func (o LimitOf) prefix(kind string) string {
	if o.Key == "" {
		return kind + o.Type
	}
	return kind + o.Type + "/" + o.Key
}

// probes is the size from which permits are first tried at random, without looking.
const probes = 1000

// Limit is how many permits of a type or key there are.
type Limit struct {
	Most int
	// Others are executions that are open without a permit: they began before the limit.
	Others int
	// Settled says that there are no others, and that no permit beyond Most is taken, as
	// one may be that was taken before the limit was lowered.
	Settled bool
}

// Take takes up to len(want) permits of a type or key, and returns those it got; want
// says for what, and its Name and times are set here. It never returns one that somebody
// else may have. An error leaves some taken perhaps: the sweeper frees them. Indexes:
// permits.of, _id.
func (s *Permits) Take(ctx context.Context, of LimitOf, limit Limit, want []lifecycle.Permit) (got []lifecycle.Permit, err error) {
	if len(want) == 0 {
		return nil, nil
	}
	if limit.Settled && limit.Most > probes {
		numbers := make([]int, 0, len(want))
		from := rand.IntN(limit.Most)
		for i := range min(len(want), limit.Most) {
			numbers = append(numbers, (from+i)%limit.Most)
		}
		got, err = s.insertNumbers(ctx, of, numbers, want)
		if err != nil || len(got) > 0 {
			return got, err
		}
	}
	taken, err := s.Taken(ctx, of)
	if err != nil {
		return nil, err
	}
	return s.insertNumbers(ctx, of, limit.free(taken, len(want)), want)
}

// free are up to n numbers of permits that can be taken, by those that are. Where some are
// taken beyond the limit, or something is open without a permit, as many of the greatest
// numbers that are free are left alone, by everybody: so they stay free whoever takes what
// after whichever look.
func (l Limit) free(taken map[int]bool, n int) []int {
	beyond := l.Others
	for i := range taken {
		if i >= l.Most {
			beyond++
		}
	}
	var free []int
	for i := range l.Most {
		if !taken[i] {
			free = append(free, i)
		}
	}
	free = free[:max(len(free)-beyond, 0)]
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return free[:min(n, len(free))]
}

// insertNumbers takes the permits of those numbers, as far as they are free, for the first
// of want.
func (s *Permits) insertNumbers(ctx context.Context, of LimitOf, numbers []int, want []lifecycle.Permit) (got []lifecycle.Permit, err error) {
	docs := make([]lifecycle.Permit, len(numbers))
	for i, n := range numbers {
		docs[i] = want[i]
		docs[i].Name = of.prefix("run/") + "#" + strconv.Itoa(n)
		docs[i].Type, docs[i].Key = of.Type, of.Key
	}
	return s.insert(ctx, docs)
}

// TakeKeys takes one permit of each of several limit_keys that have one each, in one
// command, and returns those it got. Index: _id.
func (s *Permits) TakeKeys(ctx context.Context, want []lifecycle.Permit) ([]lifecycle.Permit, error) {
	docs := make([]lifecycle.Permit, len(want))
	for i, p := range want {
		docs[i] = p
		docs[i].Name = LimitOf{p.Type, p.Key}.prefix("run/") + "#0"
	}
	return s.insert(ctx, docs)
}

func (s *Permits) insert(ctx context.Context, docs []lifecycle.Permit) (got []lifecycle.Permit, err error) {
	if len(docs) == 0 {
		return nil, nil
	}
	now := s.Clock.Now()
	for i := range docs {
		docs[i].At = now
		docs[i].LookAt = docs[i].LookAgain(now)
	}
	_, err = s.permits.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	var bulk mongo.BulkWriteException
	switch {
	case err == nil:
		return docs, nil
	case !errors.As(err, &bulk) || bulk.WriteConcernError != nil:
		return nil, explain(err, "taking permits")
	}
	refused := map[int]bool{}
	for _, e := range bulk.WriteErrors {
		if e.Code != duplicateKey {
			return nil, explain(err, "taking permits")
		}
		refused[e.Index] = true
	}
	for i := range docs {
		if !refused[i] {
			got = append(got, docs[i])
		}
	}
	return got, nil
}

// NumberFree is how many permits of a type or key could be taken now. Of a settled limit the
// server counts them. Index: permits.of.
func (s *Permits) NumberFree(ctx context.Context, of LimitOf, limit Limit) (int, error) {
	if limit.Settled {
		taken, err := s.permits.CountDocuments(ctx, permitsOf(of), options.Count().SetHint(indexOf))
		return limit.Most - int(taken), explain(err, "counting permits")
	}
	taken, err := s.Taken(ctx, of)
	if err != nil {
		return 0, err
	}
	return len(limit.free(taken, limit.Most)), nil
}

func permitsOf(of LimitOf) bson.D { return bson.D{d("type", of.Type), d("key", of.Key)} }

// Taken are the numbers of the permits that are taken. Index: permits.of.
func (s *Permits) Taken(ctx context.Context, of LimitOf) (map[int]bool, error) {
	found, err := s.find(ctx, permitsOf(of), options.Find().SetProjection(bson.D{d("type", 1), d("key", 1)}))
	taken := make(map[int]bool, len(found))
	for _, p := range found {
		if n := permitNumber(p); n >= 0 {
			taken[n] = true
		}
	}
	return taken, err
}

// KeysTaken counts the permits that are taken of each of the keys. Index: permits.of.
func (s *Permits) KeysTaken(ctx context.Context, typ string, keys []string) (map[string]int, error) {
	found, err := s.find(ctx, bson.D{d("type", typ), d("key", in(keys))}, options.Find().SetProjection(bson.D{d("key", 1)}))
	taken := map[string]int{}
	for _, p := range found {
		taken[p.Key]++
	}
	return taken, err
}

// OpenOf reads of the tasks of a type with open executions, of which at least one was claimed
// before a time, which executions are open. unread are tasks that cannot be read. Index: lapse.
func (s *Permits) OpenOf(ctx context.Context, typ string, claimedBefore time.Time) (tasks []*model.Task, unread []Unreadable, err error) {
	tasks, unread, _, err = s.readable(ctx, s.tasks, "reading what is open of a type", bson.D{
		d("type", typ), d("lapse_at", bson.D{d("$exists", true)}), d("worker_states.claimed_at", bson.D{d("$lt", claimedBefore)}),
	}, options.Find().SetHint(IndexLapse).SetProjection(append(bson.D{d("options.limit_key", 1)}, openness...)), 0)
	return tasks, unread, err
}

const idsAtOnce = 1000

// OfTasks are the permits that executions of the tasks have, or will have. Indexes: permits.task,
// permits.next.
func (s *Permits) OfTasks(ctx context.Context, taskIDs []string) (found []lifecycle.Permit, err error) {
	for some := range slices.Chunk(taskIDs, idsAtOnce) {
		either := bson.A{bson.D{d("task", in(some))}, bson.D{d("next.task", in(some))}}
		of, err := s.find(ctx, bson.D{d("$or", either)}, options.Find().SetProjection(fields("key", "task", "exec_id", "next.task", "next.exec_id")))
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	return found, nil
}

// TakenBeyond says whether a permit is taken that is beyond the limit of a type, or of one of its
// keys, as far as permits of such a limit pass on, or are taken, without looking. Index: permits.of.
func (s *Permits) TakenBeyond(ctx context.Context, typ string, ofType, ofKey int) (bool, error) {
	if ofType == 0 && ofKey <= probes {
		return false, nil
	}
	filter := bson.D{d("type", typ)}
	if ofKey <= probes {
		filter = append(filter, d("key", ""))
	}
	found, err := s.find(ctx, filter, options.Find().SetProjection(bson.D{d("type", 1), d("key", 1)}))
	return slices.ContainsFunc(found, func(p lifecycle.Permit) bool {
		limit := ofType
		if p.Key != "" {
			limit = ofKey
		}
		return limit > 0 && permitNumber(p) >= limit
	}), err
}

// permitNumber is the number of a permit of a type or key; -1 = it has none.
func permitNumber(p lifecycle.Permit) int {
	name, ok := strings.CutPrefix(p.Name, LimitOf{p.Type, p.Key}.prefix("run/")+"#")
	n, err := strconv.Atoi(name)
	if !ok || err != nil {
		return -1
	}
	return n
}

// Holders are permits that are taken of a type or key, at most limit of them, the
// longest taken first. Index: permits.of.
func (s *Permits) Holders(ctx context.Context, of LimitOf, limit int) ([]lifecycle.Permit, error) {
	return s.find(ctx, permitsOf(of),
		options.Find().SetSort(bson.D{d("at", 1)}).SetLimit(int64(limit)))
}

// OfExecutions are the permits that executions of a task have, or will have. Indexes: permits.task,
// permits.next.
func (s *Permits) OfExecutions(ctx context.Context, taskID string, execIDs []string) ([]lifecycle.Permit, error) {
	return s.find(ctx, bson.D{d("$or", bson.A{
		bson.D{d("task", taskID), d("exec_id", in(execIDs))},
		bson.D{d("next.task", taskID), d("next.exec_id", in(execIDs))},
	})}, options.Find())
}

func (s *Permits) find(ctx context.Context, filter bson.D, o *options.FindOptionsBuilder) ([]lifecycle.Permit, error) {
	return s.findIn(ctx, s.permits, filter, o)
}

func (s *Permits) findIn(ctx context.Context, permits *mongo.Collection, filter bson.D, o *options.FindOptionsBuilder) ([]lifecycle.Permit, error) {
	found, _, err := s.legible(ctx, permits, filter, o)
	return found, err
}

// legible are the permits that can be read, and the names of the others. These stay taken, because their names are.
func (s *Permits) legible(ctx context.Context, permits *mongo.Collection, filter bson.D, o *options.FindOptionsBuilder) (found []lifecycle.Permit, unread []string, err error) {
	err = readEach(ctx, permits, "reading permits", filter, o, func(doc bson.Raw) bool {
		var p lifecycle.Permit
		if err := bson.Unmarshal(doc, &p); err != nil {
			unread = append(unread, s.complain(permits, doc, err).ID)
		} else {
			found = append(found, p)
		}
		return true
	})
	return found, unread, err
}

// Free gives permits back. Each names its execution, so that one that somebody else
// has by now stays. Index: _id.
func (s *Permits) Free(ctx context.Context, permits []lifecycle.Permit) error {
	_, err := bulk(ctx, s.core, s.permits, "releasing permit", permits, func(p *lifecycle.Permit) change {
		return change{id: p.Name, guard: ownPermit(p)}
	})
	return err
}
