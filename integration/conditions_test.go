package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// Each condition alone, several values, and several conditions together; also where the
// type is claimed by the label, and where a task was sent before its type said so.
func TestAWorkerTakesOnlyTasksThatMeetItsConditions(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, c := range map[string]struct {
			only  lifecycle.Conditions
			takes []string
		}{
			"one tenant":             {lifecycle.Conditions{Tenants: []string{"acme"}}, []string{"acme-mail-ann", "acme-sms-ann", "acme-sms-bob"}},
			"no tenant":              {lifecycle.Conditions{Tenants: []string{model.NoTenant}}, []string{"-mail-bob"}},
			"two tenants":            {lifecycle.Conditions{Tenants: []string{"-", "beta"}}, []string{"-mail-bob", "beta-mail-ann"}},
			"one category":           {lifecycle.Conditions{Categories: []string{"sms"}}, []string{"acme-sms-ann", "acme-sms-bob"}},
			"one creator":            {lifecycle.Conditions{Creators: []string{"bob"}}, []string{"-mail-bob", "acme-sms-bob"}},
			"tenant and two more":    {lifecycle.Conditions{Tenants: []string{"acme"}, Categories: []string{"sms"}, Creators: []string{"bob", "eve"}}, []string{"acme-sms-bob"}},
			"a tenant without tasks": {lifecycle.Conditions{Tenants: []string{"empty"}}, nil},
		} {
			for _, by := range []model.ClaimBy{"", model.ClaimByTenant, model.ClaimByCreator, model.ClaimByCategory} {
				e.part(t, fmt.Sprintf("%s, claimed by %q", name, by), func(t *testing.T, e Engine) {
					a := newArena(t, e)
					a.sendAs("acme-mail-ann", "acme", "mail", "ann") // before the type says how it is claimed
					_, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), ClaimBy: by})
					require.NoError(t, err)
					for _, s := range [][4]string{{"acme-sms-ann", "acme", "sms", "ann"}, {"acme-sms-bob", "acme", "sms", "bob"}, {"beta-mail-ann", "beta", "mail", "ann"}, {"-mail-bob", "", "mail", "bob"}} {
						a.sendAs(s[0], s[1], s[2], s[3])
					}
					w, err := consumer.New(consumer.Config{Database: a.db, Tenants: c.only.Tenants, Categories: c.only.Categories, Creators: c.only.Creators})
					require.NoError(t, err)
					require.NoError(t, consumer.Handle(w, chaosWork, double))
					mstest.Drain(t, w, mstest.SkipTime())
					require.NoError(t, err)
					tasks, err := a.admin.Find(t.Context(), admin.Filter{Statuses: []model.Status{model.StatusSuccess}}, 0, "")
					require.NoError(t, err)
					var took []string
					for _, task := range tasks.Tasks {
						took = append(took, task.Key)
					}
					require.ElementsMatch(t, c.takes, took)
				})
			}
		}
	})
}

func (a *arena) sendAs(key, tenant, category, creator string, opts ...producer.Option) string {
	a.t.Helper()
	return a.sendKey(key, 1, append(opts, producer.Tenant(tenant), producer.Category(category), producer.Creator(creator))...).ID
}

// While it works, and by the change stream: what is sent later, and what lapses.
func TestARestrictedWorkerTakesItsOwnAndLeavesTheLapsedOfOthers(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		_, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), ClaimBy: model.ClaimByTenant})
		require.NoError(t, err)
		theirs, mine := a.sendAs("theirs", "beta", "", ""), a.sendAs("mine", "acme", "", "")
		a.abandon([]string{theirs, mine}, "dead", time.Second)
		h := a.hire("restricted", double, func(c *handConfig) { c.Tenants = []string{"acme"} })
		task := a.awaitStatus(mine, model.StatusSuccess)
		require.Equal(t, 1, task.LapseCount)
		task = a.awaitStatus(theirs, model.StatusError)
		require.Equal(t, 1, task.LapseCount, "it ends what lapsed, for others to run")
		later := a.sendAs("later", "acme", "", "")
		a.sendAs("not mine", "beta", "", "")
		a.awaitStatus(later, model.StatusSuccess)
		require.Equal(t, model.StatusNew, a.get("beta/chaos.work/not mine").Status)
		require.NoError(t, h.stop())
		a.hire("of everybody", double)
		a.awaitStatus(theirs, model.StatusSuccess)
		a.awaitStatus("beta/chaos.work/not mine", model.StatusSuccess)
	})
}

// No worker takes everything, and yet everybody is called back: those whose tasks the worker
// takes and those whose tasks it does not, also when somebody has said how deliveries are
// claimed, by a fetch as by the change stream.
func TestAFleetOfRestrictedWorkersDeliversAllCallbacks(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		_, err := a.admin.PutType(t.Context(), model.TaskType{Code: input.CallbackType, ClaimBy: model.ClaimByTenant})
		require.NoError(t, err)
		a.sendAs("before", "beta", "mail", "bob", producer.Callback(r.to()))
		of := func(tenants, categories []string, deliver bool) func(*handConfig) {
			return func(c *handConfig) {
				c.Tenants, c.Categories = tenants, categories
				if deliver {
					delivering(c)
				}
			}
		}
		a.hire("of beta", double, of([]string{"beta"}, nil, false))
		a.awaitStatus("beta/chaos.work/before", model.StatusCompleted)
		a.hire("of acme", double, of([]string{"acme"}, []string{"sms"}, true))
		a.awaitStatus("beta/chaos.work/before", model.StatusSuccess)
		a.sendAs("later", "beta", "mail", "bob", producer.Callback(r.to()))
		a.sendAs("mine", "acme", "sms", "ann", producer.Callback(r.to()))
		a.awaitStatus("beta/chaos.work/later", model.StatusSuccess)
		a.awaitStatus("acme/chaos.work/mine", model.StatusSuccess)
		require.Len(t, r.all(), 3)
		theirs := a.sendAs("not taken", "acme", "mail", "ann")
		a.sendAs("a moment", "acme", "sms", "ann")
		a.awaitStatus("acme/chaos.work/a moment", model.StatusSuccess)
		require.Equal(t, model.StatusNew, a.get(theirs).Status, "of other tasks it takes its own only")
	})
}

// With the label a restricted worker does not read through the backlog of everybody else.
func TestARestrictedWorkerFindsItsTasksAmongManyOthers(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		ofTenant := func(tenant string) func(*model.Task) {
			return func(task *model.Task) {
				task.Tenant, task.Audience = tenant, []string{lifecycle.AudienceAll, lifecycle.LabelAudience(model.ClaimByTenant, tenant)}
			}
		}
		x.insert(e.Of(50_000, 5_000), "hot", ofTenant("beta"))
		const mine = 20
		x.insert(mine, "hot", ofTenant("acme"))
		only := lifecycle.Conditions{Tenants: []string{"acme", "gamma"}}
		labels := lifecycle.ConditionLabels(&only, model.ClaimByTenant)
		ctx, now := t.Context(), x.store.Clock.Now()
		x.explain("find", func() {
			found, err := x.store.Tasks.Due(ctx, store.DueQuery{Types: []string{"hot"}, WorkerID: "me", Limit: 100, Only: &only, Labels: labels})
			require.NoError(t, err)
			require.Len(t, found, mine)
		}).within(t, mine+10, mine)
		x.explain("find", func() {
			next, err := x.store.Tasks.NextDue(ctx, store.NextQuery{Types: []string{"hot"}, WorkerID: "me", After: now, Until: now.Add(time.Minute), Only: &only, Labels: labels})
			require.NoError(t, err)
			require.Zero(t, next)
		}).within(t, 4*10*2, 0)
		x.explain("find", func() {
			seen, err := x.store.Tasks.Peek(ctx, store.Peek{Due: []string{"hot"}, WorkerID: "me", Until: now, Only: &only, Labels: labels})
			require.NoError(t, err)
			require.True(t, seen.Due)
		}).within(t, 10, 1)
		_, err := x.store.Tasks.Due(ctx, store.DueQuery{Types: []string{"a", "b"}, WorkerID: "me", Limit: 1, Labels: make([]string, 100)})
		require.ErrorContains(t, err, "would sort in memory", "it is refused rather than sorted in memory")
	})
}
