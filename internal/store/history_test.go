package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

const day = 24 * time.Hour

// past is a store on a database of its own, and makes tasks that ended long ago.
type past struct {
	*Store
	t testing.TB
}

// newPast is one on a server that is as slow as it likes: so a batch is what it should be on any
// machine.
func newPast(t testing.TB) *past {
	t.Helper()
	return pastIn(t, testdb.Patient(t))
}

func pastIn(t testing.TB, db *mongo.Database) *past {
	t.Helper()
	s, err := Open(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	return &past{s, t}
}

func key(i int) string { return fmt.Sprintf("k%05d", i) }

// ended stores a task that ended that long ago, as the rules end it.
func (p *past) ended(key string, ago time.Duration, opts model.Options, out lifecycle.Outcome) *model.Task {
	p.t.Helper()
	now := p.Clock.Now().Add(-ago)
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: key, Options: opts}, now)
	eff := lifecycle.ResolveOptions(opts)
	claimed, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "x"}, eff, now)
	require.Empty(p.t, no)
	done, err := lifecycle.Finish(claimed, "x", out, eff, now, 0)
	require.NoError(p.t, err)
	exists, err := p.Tasks.Insert(p.t.Context(), []*model.Task{done})
	require.NoError(p.t, err)
	require.False(p.t, exists[0])
	return done
}

// undelivered stores a task whose callback could not be delivered: due to move although it
// may change yet.
func (p *past) undelivered(key string) *model.Task {
	p.t.Helper()
	told := model.Options{Callback: &model.Callback{Success: &model.CallbackTarget{URL: "http://127.0.0.1/"}}}
	task := p.ended(key, 8*day, told, lifecycle.Success(bson.RawValue{}))
	require.Equal(p.t, model.StatusCompleted, task.Status)
	require.NoError(p.t, p.Tasks.RemoveOutbox(p.t.Context(), []Carried{{OutboxLife{Task: task}, task.Outbox[0]}}))
	return p.change(task.ID, func(t *model.Task) *model.Task {
		return lifecycle.Delivered(t, false, lifecycle.ResolveOptions(told), p.Clock.Now())
	})
}

func (p *past) change(id string, rule func(*model.Task) *model.Task) *model.Task {
	p.t.Helper()
	_, after, err := p.Tasks.Change(p.t.Context(), id, func(t *model.Task) (*model.Task, error) { return rule(t), nil })
	require.NoError(p.t, err)
	return after
}

// delivered is what a late delivery makes of the task.
func (p *past) delivered(id string) *model.Task {
	p.t.Helper()
	return p.change(id, func(t *model.Task) *model.Task {
		return lifecycle.Delivered(t, true, lifecycle.ResolveOptions(t.Options), p.Clock.Now())
	})
}

// again begins a new life.
func (p *past) again(key string) *model.Task {
	p.t.Helper()
	return p.change(model.TaskID("", "t", key), func(t *model.Task) *model.Task {
		after, err := lifecycle.SendAgain(t, lifecycle.Draft{Type: "t", Key: key}, model.RestartSucceeded|model.RestartFailed, p.Clock.Now())
		require.NoError(p.t, err)
		return after
	})
}

// read and the steps behind it are an archiver that can be stopped anywhere.
func (p *past) read() (lives []*life) {
	p.t.Helper()
	docs, _, err := p.History.archivable(p.t.Context(), time.Time{}, p.Clock.Now())
	require.NoError(p.t, err)
	for _, raw := range docs {
		if mayMove(raw, p.Clock.Now()) {
			l, err := newLife(raw, p.Clock.Now(), DefaultHistory)
			require.NoError(p.t, err)
			lives = append(lives, l)
		}
	}
	return lives
}

func (p *past) copyAll(lives []*life) {
	p.t.Helper()
	_, refused, err := p.History.copyLives(p.t.Context(), lives)
	require.NoError(p.t, err)
	require.Empty(p.t, refused)
}

func (p *past) delete(lives []*life) int {
	p.t.Helper()
	n, err := p.History.deleteMoved(p.t.Context(), lives)
	require.NoError(p.t, err)
	return n
}

func (p *past) archive() Archived {
	p.t.Helper()
	a, err := p.History.Archive(p.t.Context(), time.Time{})
	require.NoError(p.t, err)
	return a
}

// kept is what the history has, by life, with the rev and the status of each.
func (p *past) kept() map[string]string {
	p.t.Helper()
	cur, err := p.history.Find(p.t.Context(), bson.D{})
	require.NoError(p.t, err)
	var docs []bson.Raw
	require.NoError(p.t, cur.All(p.t.Context(), &docs))
	out := map[string]string{}
	for _, raw := range docs {
		out[raw.Lookup("_id").StringValue()] = fmt.Sprint(raw.Lookup("rev").AsInt64(), " ", raw.Lookup("status").StringValue())
	}
	return out
}

func wanted(tasks ...*model.Task) map[string]string {
	out := map[string]string{}
	for _, t := range tasks {
		out[lifeID(t.ID, t.Generation)] = fmt.Sprint(t.Rev, " ", t.Status)
	}
	return out
}

func (p *past) there(id string) bool {
	p.t.Helper()
	tasks, err := p.Tasks.ByIDs(p.t.Context(), []string{id})
	require.NoError(p.t, err)
	return tasks[id] != nil
}

func success(t testing.TB, v any) lifecycle.Outcome {
	t.Helper()
	raw, err := codec.EncodeValue("result", v, input.MaxResultBytes)
	require.NoError(t, err)
	return lifecycle.Success(raw)
}

func TestWhatEndedMovesWholeWhenItsRetentionIsOver(t *testing.T) {
	p := newPast(t)
	failed := lifecycle.Failed(failkind.Fatal, "no")
	moves := []*model.Task{
		p.ended("success", 8*day, model.Options{}, success(t, 42)),
		p.ended("failure", 8*day, model.Options{}, failed),
		p.ended("short", 2*time.Minute, model.Options{Retention: time.Minute}, success(t, 1)),
	}
	stays := []*model.Task{
		p.ended("young", 6*day, model.Options{}, success(t, 1)),
		p.ended("longer", 8*day, model.Options{Retention: 9 * day}, success(t, 1)),
		p.ended("pending", 800*day, model.Options{NeedManual: new(true)}, failed),
	}
	later := bson.D{{Key: "of_a_later_release", Value: bson.D{{Key: "x", Value: "y"}}}}
	_, err := p.tasks.UpdateOne(t.Context(), bson.D{d("_id", moves[0].ID)}, bson.D{d("$set", later)})
	require.NoError(t, err)
	before, err := p.Tasks.getRaw(t.Context(), moves[0].ID)
	require.NoError(t, err)

	now := p.Clock.Now()
	a := p.archive()
	require.Equal(t, Archived{Moved: 3, First: moves[0].ArchiveAt, Last: moves[2].ArchiveAt}, a)
	require.Equal(t, wanted(moves...), p.kept())
	for _, task := range stays {
		require.True(t, p.there(task.ID), task.Key)
	}
	after, err := p.History.LifeRaw(t.Context(), moves[0].ID, moves[0].Generation)
	require.NoError(t, err)
	archived := after.Lookup("archived_at").Time()
	require.WithinDuration(t, now, archived, time.Minute)
	require.Equal(t, archived.Add(DefaultHistory), after.Lookup("delete_at").Time())
	var was, is bson.M
	require.NoError(t, bson.Unmarshal(before, &was))
	require.NoError(t, bson.Unmarshal(after, &is))
	delete(was, "archive_at")
	delete(is, "archived_at")
	delete(is, "delete_at")
	require.Equal(t, was, is, "all of it, what this release does not know included")
}

func TestNothingMovesWithinAMinuteOfItsEndWhateverItSays(t *testing.T) {
	p := newPast(t)
	task := p.ended("k", 30*time.Second, model.Options{Retention: time.Minute}, success(t, 1))
	_, err := p.tasks.UpdateOne(t.Context(), bson.D{d("_id", task.ID)}, bson.D{d("$set", bson.D{d("archive_at", p.Clock.Now().Add(-day))})})
	require.NoError(t, err)
	require.Equal(t, 1, p.archive().PutOff)
	require.Empty(t, p.kept())
	require.True(t, p.there(task.ID))
}

func TestWhatMustStillBeFollowedIsPutOffAndDoesNotStandInTheWay(t *testing.T) {
	p := newPast(t)
	for i := range perArchive {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: key(i), Origin: &model.Origin{Kind: "flow", ID: "f"}}, p.Clock.Now().Add(-9*day))
		claimed, _ := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "x"}, lifecycle.ResolveOptions(task.Options), task.StartTime)
		done, err := lifecycle.Finish(claimed, "x", success(t, i), lifecycle.ResolveOptions(task.Options), task.StartTime, 0)
		require.NoError(t, err)
		_, err = p.Tasks.Insert(t.Context(), []*model.Task{done})
		require.NoError(t, err)
	}
	free := p.ended("free", 8*day, model.Options{}, success(t, 1))
	first := p.archive()
	require.Equal(t, perArchive, first.PutOff)
	require.True(t, first.More)
	require.Equal(t, 1, p.archive().Moved)
	require.Equal(t, wanted(free), p.kept())
	require.Zero(t, p.archive(), "for an hour")
	n, err := p.tasks.CountDocuments(t.Context(), bson.D{d("outbox.kind", "flow"), d("archive_at", bson.D{d("$gt", p.Clock.Now().Add(putOff-time.Minute))})})
	require.NoError(t, err)
	require.EqualValues(t, perArchive, n)
}

func TestManyMoveInBatches(t *testing.T) {
	p := newPast(t)
	var tasks []*model.Task
	for i := range 2*perArchive + 7 {
		// Most have the same time, more than a batch of them.
		tasks = append(tasks, p.ended(key(i), 8*day+time.Duration(i%3/2)*time.Hour, model.Options{}, success(t, i)))
	}
	var since time.Time
	var sizes []int
	for {
		a, err := p.History.Archive(t.Context(), since)
		require.NoError(t, err)
		sizes = append(sizes, a.Moved)
		if !a.More {
			break
		}
		require.False(t, a.Last.Before(a.First))
		since = a.Last
	}
	require.Equal(t, []int{perArchive, perArchive, 7}, sizes)
	require.Equal(t, wanted(tasks...), p.kept())
}

func TestATaskStartedAgainInBetweenStaysAndItsEndedLifeIsKeptOnce(t *testing.T) {
	for name, at := range map[string]int{"before the copy": 0, "after the copy": 1} {
		p := newPast(t)
		old := p.ended("k", 8*day, model.Options{}, success(t, 1))
		lives := p.read()
		if at == 1 {
			p.copyAll(lives)
		}
		fresh := p.again("k")
		require.Greater(t, fresh.Generation, old.Generation)
		if at == 0 {
			p.copyAll(lives)
		}
		require.Zero(t, p.delete(lives), name)
		require.True(t, p.there(fresh.ID), name)
		require.Equal(t, wanted(old), p.kept(), name)
	}
}

func TestACopyOfATaskThatWentOnIsTakenBack(t *testing.T) {
	p := newPast(t)
	task := p.undelivered("k")
	lives := p.read()
	p.copyAll(lives)
	require.Equal(t, wanted(task), p.kept())
	after := p.delivered(task.ID)
	require.Equal(t, model.StatusSuccess, after.Status)
	require.Zero(t, p.delete(lives))
	require.Empty(t, p.kept(), "it says Completed of a task that is Success")
	require.Equal(t, 1, p.archive().Moved)
	require.Equal(t, wanted(after), p.kept())
}

func TestACopyThatADeadArchiverLeftIsReplacedByTheRightOne(t *testing.T) {
	for name, move := range map[string]func(*past){
		"by the next archiver":       func(p *past) { p.archive() },
		"by who begins another life": func(p *past) { p.again("k") },
	} {
		p := newPast(t)
		task := p.undelivered("k")
		p.copyAll(p.read()) // and dies
		after := p.delivered(task.ID)

		page, err := p.History.FindLives(t.Context(), Filter{}, InHistory, Extent{Limit: 10})
		require.NoError(t, err)
		require.Empty(t, page.Docs, "nobody sees it meanwhile")
		lives, err := p.History.AllLives(t.Context(), task.ID)
		require.NoError(t, err)
		require.Len(t, lives, 1)
		life, err := p.History.Life(t.Context(), task.ID, task.Generation)
		require.NoError(t, err)
		require.Equal(t, model.StatusSuccess, life.Status)

		move(p)
		require.Equal(t, wanted(after), p.kept(), name)
	}
}

// A process may die between the copy of a life and what ends it: the copy is old when the life moves at last.
func TestALifeStaysFromItsEndOnWhoeverHasCopiedItBefore(t *testing.T) {
	for name, move := range map[string]func(*past){
		"by the archiver":            func(p *past) { require.Equal(t, 1, p.archive().Moved) },
		"by who begins another life": func(p *past) { p.again("k") },
	} {
		for _, keep := range []time.Duration{DefaultHistory, 0} {
			p := newPast(t)
			task := p.ended("k", 8*day, model.Options{}, success(t, 1))
			p.copyAll(p.read())
			p.Clock.Skip(6 * day)
			require.NoError(t, p.History.SetRetention(t.Context(), keep))
			before := p.Clock.Now().Truncate(time.Millisecond)
			move(p)
			require.Equal(t, wanted(task), p.kept())
			raw, err := p.History.LifeRaw(t.Context(), task.ID, task.Generation)
			require.NoError(t, err)
			archived := raw.Lookup("archived_at").Time()
			require.False(t, archived.Before(before), name)
			if keep == 0 {
				require.Zero(t, raw.Lookup("delete_at").Type, name)
			} else {
				require.Equal(t, archived.Add(keep), raw.Lookup("delete_at").Time(), name)
			}
		}
	}
}

// Its callback was delivered in the history, which raises no rev.
func TestALateArchiverDoesNotUndoWhatHappenedInTheHistory(t *testing.T) {
	p := newPast(t)
	task := p.undelivered("k")
	late, err := newLife(p.read()[0].task, p.Clock.Now().Add(day), DefaultHistory) // his clock is ahead
	require.NoError(t, err)
	require.Equal(t, 1, p.archive().Moved)
	held, err := p.History.DeliveredLives(t.Context(), []LifeOf{{task.ID, task.Generation}})
	require.NoError(t, err)
	require.Empty(t, held)
	p.copyAll([]*life{late})
	task.Status = model.StatusSuccess
	require.Equal(t, wanted(task), p.kept())
}

func TestACopyThatIsTakenBackWhileItIsReplacedIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		move func(*past)
		skip int // updates of the history before the one that replaces
	}{
		"by the next archiver":       {func(p *past) { p.archive() }, 1},
		"by who begins another life": {func(p *past) { p.again("k") }, 2},
	} {
		proxied := testdb.BehindPatient(t)
		p := pastIn(t, testdb.Through(t, proxied))
		task := p.undelivered("k")
		early := p.read()
		p.copyAll(early)
		after := p.delivered(task.ID)
		replaces := proxied.Set(proxy.Rule{Command: "update", Collection: "task_history", Skip: c.skip, Do: proxy.HoldBefore})
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			c.move(p)
		}()
		testdb.Receive(t, replaces.Hit())
		require.Zero(t, p.delete(early), name)
		require.Empty(t, p.kept(), name)
		replaces.Release()
		testdb.Receive(t, moved)
		require.Equal(t, wanted(after), p.kept(), name)
	}
}

func TestALateArchiverLeavesANewTaskOfTheSameKeyAlone(t *testing.T) {
	p := newPast(t)
	old := p.ended("k", 8*day, model.Options{}, success(t, 1))
	frozen := p.read()
	require.Equal(t, 1, p.archive().Moved)
	// Its key is free, and a new task of it has come as far as the old one had.
	fresh := p.ended("k", time.Second, model.Options{}, success(t, 2))
	require.Equal(t, old.Rev, fresh.Rev)
	p.copyAll(frozen)
	require.Zero(t, p.delete(frozen))
	require.True(t, p.there(fresh.ID))
	require.Equal(t, wanted(old), p.kept())
}

func TestTheRetentionOfTheHistoryIsTheDatabases(t *testing.T) {
	p := newPast(t)
	keep, err := p.History.Retention(t.Context())
	require.NoError(t, err)
	require.Equal(t, 90*day, keep)
	other, err := Open(Config{Database: p.db})
	require.NoError(t, err)
	move := func(name string) bson.Raw {
		task := p.ended(name, 8*day, model.Options{}, success(t, 1))
		require.Equal(t, 1, p.archive().Moved)
		raw, err := p.History.LifeRaw(t.Context(), task.ID, 0)
		require.NoError(t, err)
		return raw
	}
	require.NoError(t, other.History.SetRetention(t.Context(), 0))
	require.Zero(t, move("for ever").Lookup("delete_at").Type)
	require.NoError(t, other.History.SetRetention(t.Context(), 30*day))
	raw := move("a month")
	require.Equal(t, raw.Lookup("archived_at").Time().Add(30*day), raw.Lookup("delete_at").Time())

	// A new life's beginner keeps to it, too, but what is not carried out yet is not lost.
	require.NoError(t, p.History.SetRetention(t.Context(), time.Hour))
	told := model.Options{Callback: &model.Callback{Success: &model.CallbackTarget{URL: "http://127.0.0.1/"}}}
	for name, want := range map[string]struct {
		opts    model.Options
		carried bool
		keep    time.Duration
	}{
		"done": {model.Options{}, false, time.Hour}, "to be followed": {told, false, unfinishedHistory},
		"its delivery is under way": {told, true, unfinishedHistory},
	} {
		old := p.ended(name, time.Hour, want.opts, success(t, 1))
		if want.carried {
			_, err := p.tasks.UpdateOne(t.Context(), bson.D{d("_id", old.ID)}, bson.D{d("$unset", bson.D{d("outbox", ""), d("outbox_at", "")})})
			require.NoError(t, err)
		}
		p.again(name)
		raw, err := p.History.LifeRaw(t.Context(), old.ID, old.Generation)
		require.NoError(t, err)
		require.Equal(t, raw.Lookup("archived_at").Time().Add(want.keep), raw.Lookup("delete_at").Time(), name)
	}
}

// A process stood still between an insert that ran out of time and its repetition. Meanwhile the
// task ran, ended and moved to the history, so its key is free.
func TestAnInsertThatIsRepeatedKnowsItsOwnTaskInTheHistory(t *testing.T) {
	p := newPast(t)
	done := p.ended("k", 8*24*time.Hour, model.Options{}, lifecycle.Success(bson.RawValue{}))
	a, err := p.History.Archive(t.Context(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, 1, a.Moved)
	again := func(at time.Time) int64 {
		exists, err := p.Tasks.InsertAgain(t.Context(), []*model.Task{lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, at)})
		require.NoError(t, err)
		require.Equal(t, []bool{false}, exists)
		n, err := p.tasks.CountDocuments(t.Context(), bson.D{{Key: "type", Value: "t"}})
		require.NoError(t, err)
		return n
	}
	require.Zero(t, again(done.CreatedAt), "that life is over")
	require.Zero(t, again(done.CreatedAt.Add(-time.Hour)), "its generation was raised when the database was restored")
	require.EqualValues(t, 1, again(p.Clock.Now()), "another one may begin")
}
