package mstest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// The code of docs/guide.md, beside that of example_test.go and order_test.go.

// SendOncePerOrder sends one task for equal orders, however often it is called.
func SendOncePerOrder(ctx context.Context, p *producer.Producer, order Order) (producer.Sent, error) {
	data, err := json.Marshal(order) // equal structs have equal JSON
	if err != nil {
		return producer.Sent{}, err
	}
	return producer.Send(ctx, p, Shipping, order, producer.Key(fmt.Sprintf("%x", sha256.Sum256(data))))
}

// SendOncePerHour sends at most one task for a user in each hour.
func SendOncePerHour(ctx context.Context, p *producer.Producer, user string, now time.Time) (producer.Sent, error) {
	hour := now.UTC().Truncate(time.Hour).Format("2006-01-02T15")
	return producer.Send(ctx, p, Welcome, WelcomeArgs{User: user}, producer.Key(user+"@"+hour))
}

// SendTomorrow sends a task that starts in a day. If no worker has started it within another hour,
// it is cancelled.
func SendTomorrow(ctx context.Context, p *producer.Producer, user string) (producer.Sent, error) {
	return producer.Send(ctx, p, Welcome, WelcomeArgs{User: user},
		producer.In(24*time.Hour), producer.ExpiresIn(25*time.Hour), producer.Priority(8))
}

// Report is a report that another system makes.
var Report = model.NewType[string, string]("report.fetch")

// Answer is what the other system says about a report.
type Answer struct {
	Status int
	Body   string
	Wait   time.Duration // of a busy system
}

// HandleReports fetches reports from another system.
func HandleReports(c *consumer.Consumer, fetch func(ctx context.Context, name string) (Answer, error)) error {
	return consumer.Handle(c, Report, func(ctx context.Context, t *consumer.Task[string]) (string, error) {
		a, err := fetch(ctx, t.Args)
		switch {
		case err != nil:
			return "", err // retried with the delays of the task's strategy
		case a.Status == 429:
			return "", consumer.RetryAfter(a.Wait, errors.New("the system is busy")) // an error, with its own delay
		case a.Status == 202:
			return "", consumer.Snooze(time.Minute) // not ready yet: no error, no limit
		case a.Status == 404:
			return "", consumer.Fatal(errors.New("there is no such report")) // no retry
		}
		return a.Body, nil
	})
}

// Import is the import of a file. Its result is the number of rows.
var Import = model.NewType[[]string, int]("rows.import")

// HandleImport continues behind the last row that an earlier execution has stored.
func HandleImport(c *consumer.Consumer, store func(row string) error) error {
	return consumer.Handle(c, Import, func(ctx context.Context, t *consumer.Task[[]string]) (int, error) {
		next := 0
		if _, err := t.Restore(&next); err != nil {
			return 0, err
		}
		for ; next < len(t.Args); next++ {
			if err := store(t.Args[next]); err != nil {
				return 0, err
			}
			if err := t.Checkpoint(ctx, next+1); err != nil {
				return 0, err
			}
		}
		return next, nil
	})
}

// Approval asks a person. Its result is who approved.
var Approval = model.NewType[Order, string]("order.approve")

// HandleApprovals asks, and leaves the execution open for a week.
func HandleApprovals(c *consumer.Consumer, ask func(handle string, order Order) error) error {
	return consumer.Handle(c, Approval, func(_ context.Context, t *consumer.Task[Order]) (string, error) {
		if err := ask(t.Handle, t.Args); err != nil {
			return "", err
		}
		return "", consumer.Park(t.Now().AddDate(0, 0, 7))
	})
}

// Approve completes the execution, from any process that has the handle.
func Approve(ctx context.Context, p *producer.Producer, handle, who string) error {
	_, err := p.Complete(ctx, handle, who)
	return err
}

// Timed measures each execution of every type.
func Timed(observe func(typ string, took time.Duration)) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, x *consumer.Execution) (any, error) {
			began := time.Now()
			defer func() { observe(x.Type, time.Since(began)) }()
			return next(ctx, x)
		}
	}
}

// Reported tells an error tracker about executions that ended with an error.
func Reported(report func(task, kind, reason string)) func(consumer.Event) {
	return func(e consumer.Event) {
		switch e.Outcome {
		case "error", "fatal", "plan_error", "panic", "timeout", "undecodable":
			if e.Kind == "finished" {
				report(e.TaskID, e.Outcome, e.Reason)
			}
		}
	}
}

// NewWorker makes a worker that is measured and whose errors are reported.
func NewWorker(cfg consumer.Config, observe func(string, time.Duration), report func(task, kind, reason string)) (*consumer.Consumer, error) {
	cfg.Middleware = append(cfg.Middleware, Timed(observe))
	cfg.OnEvent = Reported(report)
	return consumer.New(cfg)
}

// LimitShipping limits the type in the whole fleet, and to one task at a time for each limit_key.
func LimitShipping(ctx context.Context, a *admin.Admin) error {
	_, err := a.PutType(ctx, model.TaskType{
		Code: Shipping.Name(), MaxRunning: 20,
		RateLimit: &model.RateLimit{Count: 100, Per: time.Second},
		KeyLimit:  &model.KeyLimit{MaxRunning: 1},
	})
	return err
}

// ShipAndWait sends an order that shares the limit of its customer, and waits for the number of the
// shipment.
func ShipAndWait(ctx context.Context, p *producer.Producer, customer string, order Order) (string, error) {
	sent, err := producer.Send(ctx, p, Shipping, order, producer.Key(order.ID), producer.LimitKey(customer))
	if err != nil {
		return "", err
	}
	return producer.Await(ctx, p, Shipping, sent) // *model.TaskError if it ended without success
}

func guide(t *testing.T, cfg consumer.Config) (*producer.Producer, *consumer.Consumer) {
	t.Helper()
	cfg.Database = mstest.DB(t)
	p, err := producer.New(producer.Config{Database: cfg.Database})
	require.NoError(t, err)
	c, err := consumer.New(cfg)
	require.NoError(t, err)
	return p, c
}

func TestKeysMakeTasksUnique(t *testing.T) {
	p, _ := guide(t, consumer.Config{})
	created := func(sent producer.Sent, err error) bool {
		require.NoError(t, err)
		return sent.Created
	}
	require.True(t, created(SendOncePerOrder(t.Context(), p, Order{ID: "1", Cents: 5})))
	require.False(t, created(SendOncePerOrder(t.Context(), p, Order{ID: "1", Cents: 5})))
	require.True(t, created(SendOncePerOrder(t.Context(), p, Order{ID: "1", Cents: 6})))
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	require.True(t, created(SendOncePerHour(t.Context(), p, "ann", noon)))
	require.False(t, created(SendOncePerHour(t.Context(), p, "ann", noon.Add(59*time.Minute))))
	require.True(t, created(SendOncePerHour(t.Context(), p, "ann", noon.Add(time.Hour))))
	sent, err := SendTomorrow(t.Context(), p, "bob")
	require.NoError(t, err)
	task, err := p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Equal(t, time.Hour, task.ExpireAt.Sub(task.DueAt))
}

func TestWhatAHandlerReturnsDecidesTheNextTry(t *testing.T) {
	p, c := guide(t, consumer.Config{})
	answers := []Answer{{Status: 202}, {Status: 429, Wait: time.Hour}, {Status: 200, Body: "ok"}}
	require.NoError(t, HandleReports(c, func(_ context.Context, name string) (Answer, error) {
		if name == "none" {
			return Answer{Status: 404}, nil
		}
		a := answers[0]
		answers = answers[1:]
		return a, nil
	}))
	sent, err := producer.Send(t.Context(), p, Report, "sales")
	require.NoError(t, err)
	none, err := producer.Send(t.Context(), p, Report, "none", producer.In(24*time.Hour))
	require.NoError(t, err)
	did := mstest.Drain(t, c, mstest.SkipTime())
	require.Equal(t, []int{1, 1}, []int{did.Succeeded, did.Failed})
	body, err := producer.Await(t.Context(), p, Report, sent)
	require.NoError(t, err)
	require.Equal(t, "ok", body)
	_, err = producer.Await(t.Context(), p, Report, none)
	require.ErrorContains(t, err, "there is no such report")
}

func TestAnImportGoesOnWhereItFailed(t *testing.T) {
	p, c := guide(t, consumer.Config{})
	var stored []string
	broken := true
	require.NoError(t, HandleImport(c, func(row string) error {
		if row == "c" && broken {
			broken = false
			return errors.New("no space")
		}
		stored = append(stored, row)
		return nil
	}))
	sent, err := producer.Send(t.Context(), p, Import, []string{"a", "b", "c", "d"})
	require.NoError(t, err)
	mstest.Drain(t, c, mstest.SkipTime())
	rows, err := producer.Await(t.Context(), p, Import, sent)
	require.NoError(t, err)
	require.Equal(t, 4, rows)
	require.Equal(t, []string{"a", "b", "c", "d"}, stored)
}

func TestAPersonApprovesAParkedOrder(t *testing.T) {
	p, c := guide(t, consumer.Config{})
	handle := ""
	require.NoError(t, HandleApprovals(c, func(h string, _ Order) error { handle = h; return nil }))
	sent, err := producer.Send(t.Context(), p, Approval, Order{ID: "17"})
	require.NoError(t, err)
	mstest.Drain(t, c)
	require.NoError(t, Approve(t.Context(), p, handle, "ann"))
	who, err := producer.Await(t.Context(), p, Approval, sent)
	require.NoError(t, err)
	require.Equal(t, "ann", who)
}

func TestErrorsAreReportedAndSnoozesAreNot(t *testing.T) {
	var reported, timed []string
	db := mstest.DB(t)
	c, err := NewWorker(consumer.Config{Database: db},
		func(typ string, _ time.Duration) { timed = append(timed, typ) },
		func(_, kind, reason string) { reported = append(reported, kind+": "+reason) })
	require.NoError(t, err)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	tries := 0
	require.NoError(t, HandleReports(c, func(context.Context, string) (Answer, error) {
		switch tries++; tries {
		case 1:
			return Answer{Status: 202}, nil
		case 2:
			panic("no answer")
		default:
			return Answer{Status: 404}, nil
		}
	}))
	_, err = producer.Send(t.Context(), p, Report, "sales")
	require.NoError(t, err)
	mstest.Drain(t, c, mstest.SkipTime())
	require.Equal(t, []string{"report.fetch", "report.fetch", "report.fetch"}, timed)
	require.Len(t, reported, 2)
	require.Contains(t, reported[0], "panic: no answer")
	require.Equal(t, "fatal: there is no such report", reported[1])
}

func TestLimitedOrdersAreShippedOneByOneForEachCustomer(t *testing.T) {
	p, c := guide(t, consumer.Config{})
	require.NoError(t, LimitShipping(t.Context(), admin.New(p)))
	require.NoError(t, consumer.Handle(c, Shipping, func(_ context.Context, o *consumer.Task[Order]) (string, error) {
		if o.Args.Cents == 0 {
			return "", consumer.Fatal(errors.New("nothing to ship"))
		}
		return "number " + o.Args.ID, nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	number, err := ShipAndWait(t.Context(), p, "ann", Order{ID: "1", Cents: 5})
	require.NoError(t, err)
	require.Equal(t, "number 1", number)
	_, err = ShipAndWait(t.Context(), p, "ann", Order{ID: "2"})
	var failed *model.TaskError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, model.StatusFailure, failed.Status)
	stop()
	require.NoError(t, <-ended)
}

// ScheduleWelcome makes a rule that sends a task each night. A service calls it when it starts.
func ScheduleWelcome(ctx context.Context, rules *periodic.Periodic) error {
	enabled := true
	_, err := rules.Apply(ctx, schedule.Spec{
		Name: "welcome", Cron: "0 30 2 * * *", Timezone: "Europe/Berlin", Enabled: &enabled,
		Type: Welcome.Name(), Args: WelcomeArgs{User: "ann"},
	})
	return err
}

func TestARuleInCodeIsMadeOnce(t *testing.T) {
	rules, err := periodic.New(periodic.Config{Database: mstest.DB(t)})
	require.NoError(t, err)
	require.NoError(t, ScheduleWelcome(t.Context(), rules))
	require.NoError(t, ScheduleWelcome(t.Context(), rules))
	r, err := rules.Named(t.Context(), "", "welcome")
	require.NoError(t, err)
	require.Equal(t, "online", r.Status)
	require.EqualValues(t, 1, r.Version)
}
