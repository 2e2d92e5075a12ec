package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestExplainKnowsWhatConditionsAndLimitsKeepBack(t *testing.T) {
	s := newSession(t)
	began, end := make(chan bool, 10), make(chan bool)
	c, err := consumer.New(consumer.Config{Database: database(t, s), WorkerID: "of acme", Tenants: []string{"acme"}})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, model.NewType[any, model.None]("t"), func(context.Context, *consumer.Task[any]) (model.None, error) {
		began <- true
		<-end
		return model.None{}, nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- c.Run(ctx) }()
	defer func() {
		close(end)
		cancel()
		require.NoError(t, testdb.Receive(t, stopped))
	}()
	s.eventually("a worker", func() bool { return strings.Contains(s.run("worker", "list").stdout, "tenants acme") })
	s.ok("send", "t", "--key", "k")
	require.Contains(t, s.ok("task", "explain", "t/k").stdout, "It has no tenant. No live worker of its type (1) takes such a task.")
	s.ok("send", "t", "--key", "first", "--tenant", "acme", "--limit-key", "ann")
	testdb.Receive(t, began)
	s.ok("send", "t", "--key", "second", "--tenant", "acme", "--limit-key", "ann")
	s.eventually("the second to be held back", func() bool {
		out := s.ok("task", "explain", "acme/t/second").stdout
		return strings.Contains(out, "holds it back") && strings.Contains(out, "acme/t/first has held a permit since")
	})
}

func TestWaitingTasksOfTheBuiltInTypesNameTheWorkerThatTheyNeed(t *testing.T) {
	s := newSession(t)
	require.Contains(t, s.ok("send", "exec", "--key", "k", "--args", `{"argv":["true"]}`).stderr, "no live worker runs exec; start one: mscheduler work --allow-exec")
	require.Contains(t, s.ok("task", "explain", "exec/k").stdout, "Start a worker that handles exec: mscheduler work --allow-exec. It finds the task by itself.")
	require.Contains(t, s.ok("send", "http", "--key", "k", "--args", `{"url":"http://127.0.0.1:1/"}`).stderr, "no live worker runs http; start one: mscheduler work")
	require.Contains(t, s.ok("task", "explain", "http/k").stdout, "Start a worker that handles http: mscheduler work. It finds the task by itself.")
}

func TestTheTutorialShowsWhatExplainPrints(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorial.md"))
	require.NoError(t, err)
	s := newSession(t)
	s.ok("send", "mail.send", "--key", "welcome-ann@example.org")
	printed := s.ok("task", "explain", "mail.send/welcome-ann@example.org").stdout
	since := regexp.MustCompile(`since .*? and`)
	require.Contains(t, since.ReplaceAllString(string(page), "since"), "```\n"+since.ReplaceAllString(printed, "since")+"```")
}
