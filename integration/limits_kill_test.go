package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A process is killed when it has taken its permits and its claims are on the way. The
// permits come back; and whether or not the claims arrive then, after others have taken
// them, no more executions are open than there are permits.
func TestPermitsOfAProcessThatDiesBeforeItsClaimComeBackAndItsClaimsDoNot(t *testing.T) {
	limits := map[string]struct {
		most   int
		limit  func(*model.TaskType)
		option []producer.Option
	}{
		"of a type": {2, func(typ *model.TaskType) { typ.MaxRunning = 2 }, nil},
		"of a key":  {1, func(*model.TaskType) {}, []producer.Option{producer.LimitKey("customer")}},
	}
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, l := range limits {
			for claims, arrive := range map[string]bool{"arrive late": true, "are lost": false} {
				t.Run(name+" and the claims "+claims, func(t *testing.T) {
					t.Parallel()
					a := newArena(t, e)
					a.limit(l.limit)
					px, _ := a.behind()
					held := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "claimed_at", Do: proxy.HoldBefore})
					// Only it may have those that it takes permits for: nobody else's claim is
					// what refuses its own.
					its := a.sendLimited(l.most, 150, func(int) []producer.Option {
						return append([]producer.Option{producer.Workers("victim"), producer.Priority(9)}, l.option...)
					})
					ids := a.sendLimited(12, 150, func(int) []producer.Option { return append([]producer.Option{seconds(20)}, l.option...) })
					victim := a.process("TestLimitsChild", "victim", "limits", px.URI())
					select {
					case <-held.Hit():
					case <-time.After(chaosPatience):
						require.Fail(t, "the victim never came there")
					}
					victim.Kill()
					require.ElementsMatch(t, its, a.permitted(), "it has taken the permits")
					a.limitedChild("heir")
					a.awaitDone(ids, 1) // they came back
					if arrive {
						held.Release()
					} else {
						px.Drop()
					}
					a.awaitSuccess(ids)
					for _, id := range its {
						task := a.get(id)
						require.Empty(t, task.WorkerStates, "a claim came through for which there is no permit: %s", inWords(task))
					}
					a.limitedChild("victim") // started again
					a.awaitSuccess(its)
					sure, maybe := openAtOnce(a.runs(append(ids, its...)))
					require.LessOrEqual(t, sure, l.most)
					require.GreaterOrEqual(t, maybe, l.most)
					awaitTrue(t, func() string {
						if left := a.permitted(); len(left) > 0 {
							return "permits that nobody gives back"
						}
						return ""
					})
				})
			}
		}
	})
}

// permitted are the tasks that there are permits for.
func (a *arena) permitted() (ids []string) {
	a.t.Helper()
	cur, err := a.db.Collection("permits").Find(a.t.Context(), bson.D{{Key: "task", Value: bson.D{{Key: "$exists", Value: true}}}})
	require.NoError(a.t, err)
	var permits []lifecycle.Permit
	require.NoError(a.t, cur.All(a.t.Context(), &permits))
	for _, p := range permits {
		ids = append(ids, p.TaskID)
	}
	return ids
}
