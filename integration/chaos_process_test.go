package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A worker in a process of its own: this test binary, started again with these
// variables. What its handlers do they note in the collection marks.
const (
	childURI  = "MSCHEDULER_CHAOS_URI"
	childDB   = "MSCHEDULER_CHAOS_DB"
	childRole = "MSCHEDULER_CHAOS_ROLE"
	childName = "MSCHEDULER_CHAOS_NAME"
)

// TestChaosChild is no test: it is what a child process runs.
func TestChaosChild(t *testing.T) {
	role := os.Getenv(childRole)
	if role == "" {
		t.Skip("only in a child process")
	}
	client, err := engine.Client(os.Getenv(childURI))
	require.NoError(t, err)
	db := client.Database(os.Getenv(childDB))
	mark := func(ctx context.Context, kind, task string) {
		_, err := db.Collection("marks").InsertOne(ctx, bson.D{{Key: "kind", Value: kind}, {Key: "task", Value: task}, {Key: "worker", Value: os.Getenv(childName)}})
		if err != nil {
			fmt.Fprintln(os.Stderr, "marking:", err)
		}
	}
	told := hearParent()
	c, err := consumer.New(consumer.Config{Database: db, WorkerID: os.Getenv(childName), Concurrency: 5, OnEvent: func(e consumer.Event) {
		if e.Kind == workerevent.Fenced || e.Kind == workerevent.LeaseLost {
			mark(context.Background(), e.Kind, e.TaskID)
		}
	}})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, chaosWork, func(ctx context.Context, task *consumer.Task[int]) (int, error) {
		mark(context.WithoutCancel(ctx), "started", task.TaskID)
		switch role {
		case "poison":
			os.Exit(3)
		case "hang":
			<-ctx.Done()
			return 0, ctx.Err()
		case "steps":
			if _, err := consumer.Step(ctx, "who", func(context.Context) (string, error) { return os.Getenv(childName), nil }); err != nil {
				return 0, err
			}
			mark(ctx, "stepped", task.TaskID)
			<-ctx.Done()
			return 0, ctx.Err()
		case "freeze":
			// Frozen in here for longer than its lease, it does not look at its context.
			<-told
			return 1, nil
		}
		return 2, nil
	}))
	require.NoError(t, c.Run(t.Context()))
}

// asChild is the role and the name of this process, and the database, in a child process whose role begins
// with one of the kinds. Elsewhere the test is skipped.
func asChild(t *testing.T, kinds ...string) (role, name string, db *mongo.Database) {
	t.Helper()
	role = os.Getenv(childRole)
	if !slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(role, kind) }) {
		t.Skip("only in a child process")
	}
	hearParent()
	client, err := engine.Client(os.Getenv(childURI))
	require.NoError(t, err)
	return role, os.Getenv(childName), client.Database(os.Getenv(childDB))
}

// hearParent ends a child process when the process that started it is gone. The channel is
// closed when that writes a line.
func hearParent() <-chan struct{} {
	told := make(chan struct{})
	go func() {
		lines := bufio.NewReader(os.Stdin)
		if _, err := lines.ReadString('\n'); err == nil {
			close(told)
			_, _ = io.Copy(io.Discard, lines) // nothing more comes; the end is what counts
		}
		os.Exit(1)
	}()
	return told
}

// child starts a worker process. It is killed at the end of the test.
func (a *arena) child(name, role string) *fleet.Process {
	a.t.Helper()
	return a.process("TestChaosChild", name, role, a.e.URI)
}

// process starts this binary again, for one of its tests that is none; what it writes is told
// when the scenario fails.
func (a *arena) process(test, name, role, uri string) *fleet.Process {
	a.t.Helper()
	self, err := os.Executable()
	require.NoError(a.t, err)
	p, err := fleet.Start(fleet.Command{
		Name: name, Path: self, Args: []string{"-test.run", "^" + test + "$", "-test.timeout", "60m"},
		Env: append(os.Environ(), enginesVariable+"=none", childURI+"="+uri, childDB+"="+a.db.Name(), childRole+"="+role, childName+"="+name),
	})
	require.NoError(a.t, err)
	a.t.Cleanup(func() {
		p.Kill() // it may have ended
		if a.t.Failed() {
			a.t.Logf("output of %s:\n%s", name, p.Output())
		}
	})
	return p
}

// marks counts what children noted.
func (a *arena) marks(kind, worker string) int {
	a.t.Helper()
	n, err := a.db.Collection("marks").CountDocuments(a.t.Context(), bson.D{{Key: "kind", Value: kind}, {Key: "worker", Value: worker}})
	require.NoError(a.t, err)
	return int(n)
}

func (a *arena) awaitMarks(kind, worker string, n int) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		if got := a.marks(kind, worker); got < n {
			return fmt.Sprintf("%d of %d %s by %s", got, n, kind, worker)
		}
		return ""
	})
}

func TestAKilledProcessCostsItsTasksOneLeaseAndNoError(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(5, a.seconds(5))
		victim := a.child("victim", "hang")
		a.awaitMarks("started", "victim", 5)
		victim.Kill()
		done := newEffects()
		h := a.hire("heir", done.handle)
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		require.EqualValues(t, 5, h.Stats().Takeovers)
		for _, id := range ids {
			task := a.get(id)
			require.Equal(t, 1, task.LapseCount)
			require.Zero(t, task.ErrorCount)
			late := task.WorkerStates[1].ClaimedAt.Sub(task.WorkerStates[0].PingExpireTime)
			require.GreaterOrEqual(t, late, time.Duration(0), "taken before the lease ended")
		}
	})
}

func TestATaskThatKillsItsProcessTooOftenEndsAsFailure(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(1, a.seconds(3), producer.MaxLapses(1))
		for n := 1; n <= 2; n++ {
			name := fmt.Sprintf("poisoned-%d", n)
			victim := a.child(name, "poison")
			a.awaitMarks("started", name, 1)
			_ = victim.Wait() // it exits in its handler
		}
		done := newEffects()
		a.hire("survivor", done.handle)
		a.awaitEach(ids, "Failure", func(task *model.Task) bool { return task.Status == model.StatusFailure })
		require.Zero(t, done.count(ids[0]), "a third process would have died")
		task := a.get(ids[0])
		require.Equal(t, 2, task.LapseCount)
		require.Contains(t, task.ErrorInfo, "sent no ping")
	})
}

func TestAProcessFrozenPastItsLeaseIsRefusedWhenItWakes(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(3, a.seconds(5))
		frozen := a.child("frozen", "freeze")
		a.awaitMarks("started", "frozen", 3)
		require.NoError(t, frozen.Freeze())
		h := a.hire("heir", func(context.Context, *consumer.Task[int]) (int, error) { return 2, nil })
		a.awaitSuccess(ids)
		require.EqualValues(t, 3, h.Stats().Takeovers)
		_, err := fmt.Fprintln(frozen)
		require.NoError(t, err)
		require.NoError(t, frozen.Thaw())
		a.awaitMarks(string(workerevent.Fenced), "frozen", 3)
		for _, id := range ids {
			task := a.get(id)
			require.EqualValues(t, 2, task.Result.AsInt64(), "the late result was applied")
			require.Equal(t, 1, task.LapseCount)
		}
	})
}
