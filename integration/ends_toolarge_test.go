package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// largestDocument is what the server stores of one document.
const largestDocument = 16 << 20

// tight stores a task whose document has room for so many bytes more once this worker has
// claimed it.
func (a *arena) tight(key, workerID string, room int) string {
	a.t.Helper()
	return a.tightFor(2*time.Second, key, workerID, room)
}

// tightFor is tight with that lease.
func (a *arena) tightFor(lease time.Duration, key, workerID string, room int) string {
	a.t.Helper()
	args, err := codec.EncodeValue("args", 1, input.MaxArgsBytes)
	require.NoError(a.t, err)
	task := lifecycle.NewTask(lifecycle.Draft{Type: chaosWork.Name(), Key: key, Args: args, Options: model.Options{
		WorkerTimeout: lease, PingInterval: lease / 2,
	}}, a.store.Clock.Now())
	eff := lifecycle.ResolveOptions(task.Options)
	claimed, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: workerID, ExecID: "00000000-0000-4000-8000-000000000000"}, eff, task.DueAt)
	require.Empty(a.t, no)
	const field = len("\x05padding\x00") + 4 + 1
	padding := make([]byte, largestDocument-len(codec.AppendTask(nil, claimed))-field-room)
	doc := codec.AppendTask(nil, task)
	doc = append(doc[:len(doc)-1], "\x05padding\x00"...)
	doc = binary.LittleEndian.AppendUint32(doc, uint32(len(padding))) //nolint:gosec // below 16 MB
	doc = append(append(append(doc, 0), padding...), 0)
	binary.LittleEndian.PutUint32(doc, uint32(len(doc))) //nolint:gosec // as above
	_, err = a.db.Collection("tasks").InsertOne(a.t.Context(), bson.Raw(doc))
	require.NoError(a.t, err)
	return task.ID
}

// spoken lets the answers say by another code that a document is too large, whichever
// release of MongoDB gave them.
func spoken(code int32) func(string, bson.Raw) bson.Raw {
	say := func(code int32) []byte {
		return binary.LittleEndian.AppendUint32([]byte("\x10code\x00"), uint32(code)) //nolint:gosec // a code of MongoDB
	}
	return func(_ string, answer bson.Raw) bson.Raw {
		for _, known := range []int32{10334, 17419, 17420} {
			answer = bytes.ReplaceAll(answer, say(known), say(code))
		}
		return answer
	}
}

// together lets so many tasks end together. On a machine that is so slow that one of them has
// lapsed, and has no room to be claimed again, the others go on without it.
type together struct {
	n    int
	all  chan struct{}
	once sync.Once

	mu    sync.Mutex
	began map[string]bool
}

func newTogether(n int) *together {
	return &together{n: n, all: make(chan struct{}), began: map[string]bool{}}
}

func (g *together) wait(ctx context.Context, id string) error {
	g.mu.Lock()
	g.began[id] = true
	if len(g.began) == g.n {
		g.once.Do(func() { close(g.all) })
	}
	g.mu.Unlock()
	select {
	case <-g.all:
		return nil
	case <-time.After(10 * time.Second): // without it
		g.once.Do(func() { close(g.all) })
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAnEndThatTheServerRefusesKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int32{"since 7.0": 10334, "4.4 to 6.0": 17419, "one of a later release": 999_999} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEnginesAlone(t, withoutRace(inDepth(virtually(func(t *testing.T, e Engine) {
				a := newArena(t, e.another(t))        // documents of 16 MB push much out of the log of events
				large := a.tight("large", "w", 2000)  // room for the reason why its result is not there
				full := a.tight("full", "w", 20)      // no room for any end
				closed := a.tight("closed", "w", -20) // no room for a claim
				small := a.send(20)
				p, db := a.behind()
				p.Rewrite(spoken(code))
				together := newTogether(22)
				h := a.hire("w", nil, through(db), func(c *handConfig) {
					c.Concurrency, c.ShutdownTimeout = 30, time.Second
					c.register = func(c *consumer.Consumer) error {
						return consumer.Handle(c, model.NewType[int, string](chaosWork.Name()), func(ctx context.Context, task *consumer.Task[int]) (string, error) {
							if task.Key == "afterwards" {
								return "", nil
							}
							if err := together.wait(ctx, task.TaskID); err != nil {
								return "", err
							}
							if task.TaskID == large {
								return strings.Repeat("x", 10_000), nil
							}
							return "", nil
						})
					}
				})
				a.awaitSuccess(small)
				task := a.awaitStatus(large, model.StatusFailure)
				require.Contains(t, task.ErrorInfo, "the result cannot be stored")
				require.Equal(t, model.StatusNew, a.get(closed).Status)

				// The one without room lapses, and nobody can say so: others go on all the same.
				a.await(full, "lapsed", func(task *model.Task) bool { return task.LapseAt.Before(a.store.Clock.Now()) })
				a.awaitStatus(a.sendKey("afterwards", 1).ID, model.StatusSuccess)
				require.Equal(t, model.StatusExecuting, a.get(full).Status)
				for _, outage := range h.events.all(workerevent.Outage) { // so much may be late, on a slow machine
					require.NotContains(t, outage.Reason, "too large", "an answer is no outage")
				}
				_, err := a.db.Collection("tasks").DeleteMany(t.Context(), bson.D{{Key: "padding", Value: bson.D{{Key: "$exists", Value: true}}}})
				require.NoError(t, err)
			}))))
		})
	}
}

func TestAStepThatTheServerRefusesIsAnErrorOfItsHandler(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e.another(t)) // documents of 16 MB push much out of the log of events
		large := a.tightFor(time.Hour, "large", "w", 2000)
		p, db := a.behind()
		p.Rewrite(spoken(17419))
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			_, err := consumer.Step(ctx, "much", func(context.Context) (string, error) { return strings.Repeat("x", 10_000), nil })
			return 0, consumer.Fatal(err)
		}, through(db))
		task := a.awaitStatus(large, model.StatusFailure)
		require.Contains(t, task.ErrorInfo, "writing task "+large)
	})
}

// A later release may refuse a write for a moment with a code that nobody here knows.
func TestAnEndThatIsRefusedForAReasonUnknownHereIsTriedAgain(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e.another(t)) // documents of 16 MB push much out of the log of events
		id := a.tightFor(time.Hour, "large", "w", 2000)
		p, db := a.behind()
		refused := make(chan struct{})
		var once sync.Once
		say := spoken(999_999)
		p.Rewrite(func(command string, answer bson.Raw) bson.Raw {
			said := say(command, answer)
			if !bytes.Equal(said, answer) {
				once.Do(func() { close(refused) })
			}
			return said
		})
		a.hire("w", nil, through(db), func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				return consumer.Handle(c, model.NewType[int, string](chaosWork.Name()), func(context.Context, *consumer.Task[int]) (string, error) {
					return strings.Repeat("x", 10_000), nil
				})
			}
		})
		receive(t, refused, "the refusal")
		_, err := a.db.Collection("tasks").UpdateByID(t.Context(), id, bson.D{{Key: "$unset", Value: bson.D{{Key: "padding", Value: ""}}}})
		require.NoError(t, err)
		require.Len(t, a.awaitStatus(id, model.StatusSuccess).Result.StringValue(), 10_000)
	})
}
