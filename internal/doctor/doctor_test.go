package doctor_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/doctor"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// Of two members with data and an arbiter, two make a majority, so writes end with the first that is lost.
func TestAnArbiterThatMakesTheLossOfOneMemberAnOutageIsNamed(t *testing.T) {
	for _, c := range []struct {
		hosts, passives, arbiters int
		fragile                   bool
	}{{1, 0, 0, false}, {2, 0, 1, true}, {1, 1, 1, true}, {3, 0, 0, false}, {2, 1, 1, true}, {4, 0, 1, false}, {3, 0, 1, true}} {
		p := testdb.Behind(t)
		p.Rewrite(func(command string, answer bson.Raw) bson.Raw {
			return replicaSet(command, answer, c.hosts, c.passives, c.arbiters)
		})
		st, err := store.Open(store.Config{Database: testdb.Through(t, p)})
		require.NoError(t, err)
		found := finding(t, st, "server")
		if c.fragile {
			require.Equal(t, "warn", found.State, c)
			require.Contains(t, found.Detail, "replica set with an arbiter: if one member with data is lost, no write is acknowledged")
		} else {
			require.Equal(t, "ok", found.State, c)
		}
	}
}

func TestAWorkerIDOfSeveralLiveProcessesIsNamed(t *testing.T) {
	st, _ := prepared(t)
	beat := func(process string, pid int, first bool) {
		t.Helper()
		_, err := st.Workers.Beat(t.Context(), store.Worker{ID: "w", Process: process, Host: "host" + process, PID: pid}, first)
		require.NoError(t, err)
	}
	findings := func() (out []doctor.Finding) {
		for _, f := range doctor.Examine(t.Context(), doctor.Config{Store: st, Text: error.Error}).Findings {
			if f.Check == "worker ids" {
				out = append(out, f)
			}
		}
		return out
	}
	beat("A", 7, true)
	beat("B", 8, true)
	require.Empty(t, findings(), "B may have replaced A")
	beat("A", 7, false)
	require.Equal(t, []doctor.Finding{{
		Check: "worker ids", State: "warn", Detail: "several processes use the worker id w: pid 8 on hostB, and pid 7 on hostA",
		Advice: "give each process its own worker id",
	}}, findings())
}

func TestEnginesAreNoWorkers(t *testing.T) {
	st, _ := prepared(t)
	beat := func(w store.Worker) {
		t.Helper()
		_, err := st.Workers.Beat(t.Context(), w, true)
		require.NoError(t, err)
	}
	beat(store.Worker{ID: "e", Types: []string{tickplan.EngineType}, Stream: "off"})
	require.Equal(t, doctor.Finding{
		Check: "workers", State: "warn", Detail: "no live worker; 1 live engine, for " + tickplan.EngineType,
		Advice: "start one: mscheduler work, or a service with a consumer",
	}, finding(t, st, "workers"))
	beat(store.Worker{ID: "w", Types: []string{"mail"}, Concurrency: 3, Stream: "off"})
	require.NoError(t, st.Workers.Pulls(t.Context(), "p", []string{"report"}, nil))
	require.Equal(t, doctor.Finding{
		Check: "workers", State: "ok", Detail: "2 live workers, for mail, report; 1 live engine, for " + tickplan.EngineType,
	}, finding(t, st, "workers"))
}

func TestRulesWithoutAnEngineAreNamed(t *testing.T) {
	st, db := prepared(t)
	require.Equal(t, "ok", finding(t, st, "rules").State, "there is no rule")
	rules, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	rule, err := rules.Create(t.Context(), schedule.Spec{Name: "nightly", Cron: "@daily", Type: "report"})
	require.NoError(t, err)
	require.Equal(t, "ok", finding(t, st, "rules").State, "a rule that is not enabled has no tick")
	_, err = rules.Enable(t.Context(), rule.ID, rule.Version)
	require.NoError(t, err)
	require.Equal(t, doctor.Finding{
		Check: "rules", State: "warn", Detail: "rules have ticks to come, but there is no live engine of rules: no rule fires",
		Advice: "start one: mscheduler work --periodic, or a service that calls periodic.Periodic.Run",
	}, finding(t, st, "rules"))
	_, err = st.Workers.Beat(t.Context(), store.Worker{ID: "e", Types: []string{tickplan.EngineType}}, true)
	require.NoError(t, err)
	require.Equal(t, "ok", finding(t, st, "rules").State)
}

func TestLapsedLeasesAreCountedWhateverTheirTasksHave(t *testing.T) {
	st, db := prepared(t)
	require.NoError(t, st.ReadClock(t.Context()))
	lapsed := st.Clock.Now().Add(-time.Hour)
	_, err := db.Collection("tasks").InsertMany(t.Context(), []bson.D{
		{{Key: "_id", Value: "-/mail/a"}, {Key: "type", Value: "mail"}, {Key: "generation", Value: 1}, {Key: "lapse_at", Value: lapsed}, {Key: "worker_states", Value: "of a later release"}},
		{{Key: "_id", Value: "-/mail/b"}, {Key: "type", Value: "mail"}, {Key: "generation", Value: 1}, {Key: "lapse_at", Value: lapsed.Add(time.Minute)}},
	})
	require.NoError(t, err)
	got := finding(t, st, "leases")
	require.Equal(t, "warn", got.State)
	require.Regexp(t, `^2 lapsed, the oldest \(mail/a\) `, got.Detail)
}

func TestTheAdviceOnPausesEndsEachOfThem(t *testing.T) {
	st, _ := prepared(t)
	require.NoError(t, st.Control.Pause(t.Context(), true, nil, "", "me"))
	require.Equal(t, "to resume: mscheduler resume --all", finding(t, st, "pauses").Advice)
	require.NoError(t, st.Control.Pause(t.Context(), false, []string{"mail"}, "", "me"))
	require.Equal(t, doctor.Finding{
		Check: "pauses", State: "warn", Detail: "claiming is paused for all types, and for mail by name",
		Advice: "to resume: mscheduler resume --all, and mscheduler resume mail",
	}, finding(t, st, "pauses"))
	require.NoError(t, st.Control.Resume(t.Context(), true, nil))
	require.Equal(t, "to resume: mscheduler resume mail", finding(t, st, "pauses").Advice)
}

// prepared is a database that is set up.
func prepared(t *testing.T) (*store.Store, *mongo.Database) {
	t.Helper()
	db := testdb.New(t)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	return st, db
}

// finding is that of one check.
func finding(t *testing.T, st *store.Store, check string) doctor.Finding {
	t.Helper()
	r := doctor.Examine(t.Context(), doctor.Config{Store: st, Text: error.Error})
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == check })
	require.NotEqual(t, -1, i, r.Findings)
	return r.Findings[i]
}

// replicaSet rewrites the answers of the embedded server to those of a replica set with so many members.
func replicaSet(command string, answer bson.Raw, hosts, passives, arbiters int) bson.Raw {
	var doc bson.D
	if bson.Unmarshal(answer, &doc) != nil {
		return answer
	}
	var own any
	doc = slices.DeleteFunc(doc, func(e bson.E) bool {
		if e.Key == "hosts" {
			own = e.Value.(bson.A)[0]
		}
		return e.Key == "hosts" || e.Key == "mschedulerEmbedded"
	})
	if own != nil {
		for name, n := range map[string]int{"hosts": hosts, "passives": passives, "arbiters": arbiters} {
			members := make(bson.A, n)
			for i := range members {
				members[i] = own
			}
			doc = append(doc, bson.E{Key: name, Value: members})
		}
	}
	out, err := bson.Marshal(doc)
	if err != nil {
		return answer
	}
	return out
}
