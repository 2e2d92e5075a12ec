package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A worker of hundreds of types that all have tasks does not look through all types before
// it claims the first task, and misses none in the end.
func TestAWorkerOfHundredsOfTypesClaimsBetweenItsSeeks(t *testing.T) {
	onEngines(t, inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, db := a.behind()
		l := listen(t, px.URI(), db.Name())
		const n = 300
		types := make([]model.Type[int, int], n)
		var ids []string
		for i := range types {
			types[i] = model.NewType[int, int](fmt.Sprintf("many.%03d", i))
			sent, err := producer.Send(t.Context(), a.p, types[i], i)
			require.NoError(t, err)
			ids = append(ids, sent.ID)
		}
		px.Delay(5 * time.Millisecond) // so at most ten seeks fit into a look
		t.Cleanup(func() { px.Delay(0) })
		began := time.Now()
		a.hire("w", nil, through(l.Database), func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				for _, typ := range types {
					if err := consumer.Handle(c, typ, func(_ context.Context, task *consumer.Task[int]) (int, error) { return task.Args, nil }); err != nil {
						return err
					}
				}
				return nil
			}
		})
		a.awaitEach(ids, "Success", func(t *model.Task) bool { return t.Status == model.StatusSuccess })
		most, seeks, looks := 0, 0, 0
		for _, q := range l.by(began, store.IndexDue, "") {
			if q.command.Lookup("projection", "type").Type != 0 && q.command.Lookup("projection", "due_at").Type == 0 {
				seeks++
			} else {
				looks++
				most, seeks = max(most, seeks), 0
			}
		}
		require.Positive(t, most)
		require.LessOrEqual(t, most, 25, "seeks between two looks at what is due; of %d looks", looks)
	}))
}
