package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// asRouter makes the answer to hello that of a router.
func asRouter(answer bson.D) bson.D {
	router := bson.D{field("msg", "isdbgrid")}
	for _, e := range answer {
		if e.Key != "setName" && e.Key != "hosts" && e.Key != "primary" && e.Key != "me" {
			router = append(router, e)
		}
	}
	return router
}

// routed has the store believe that it talks to a router, whose answers to writes are changed.
func (a *answered) routed(t *testing.T, change func(request bson.Raw, answer bson.D) bson.D) {
	t.Helper()
	a.proxy.RewriteWith(func(request, answer bson.Raw) bson.Raw {
		var doc bson.D
		if bson.Unmarshal(answer, &doc) != nil {
			return answer
		}
		switch request.Index(0).Key() {
		case "hello":
			doc = asRouter(doc)
		case "update":
			a.updates.Add(1)
			doc = change(request, doc)
		case "insert", "findAndModify":
			doc = change(request, doc)
		default:
			return answer
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			return answer
		}
		return raw
	})
	require.NoError(t, a.Ready(t.Context()))
	topology, err := a.Topology(t.Context())
	require.NoError(t, err)
	require.True(t, topology.Sharded)
}

// ranOutEach is what a router answers whose time ended before its shard had an answer to the statements that are
// meant: the majority lags, say, and the primary has carried them out.
func ranOutEach(request bson.Raw, answer bson.D, meant func(key string) bool) bson.D {
	return failedEach(50, request, answer, meant)
}

// failedEach is what a router answers that has an error of that code for the statements that are meant.
func failedEach(code int, request bson.Raw, answer bson.D, meant func(key string) bool) bson.D {
	var keys []string
	if list, ok := request.Lookup("updates").ArrayOK(); ok {
		statements, _ := list.Values()
		for _, st := range statements {
			id, _ := st.Document().Lookup("q", "_id").StringValueOK()
			keys = append(keys, id[strings.LastIndex(id, "/")+1:])
		}
	} else { // the documents of an insert are no part of the command's own
		raw, _ := bson.Marshal(answer)
		keys = make([]string, bson.Raw(raw).Lookup("n").AsInt64())
	}
	var each bson.A
	for i, key := range keys {
		if meant(key) {
			each = append(each, bson.D{field("index", number(i)), field("code", number(code)), field("errmsg", "the shard has failed")})
		}
	}
	if len(each) == 0 {
		return answer
	}
	return bson.D{field("n", number(len(keys)-len(each))), field("nModified", number(0)), field("writeErrors", each), field("ok", 1.0)}
}

func all(string) bool { return true }

func TestBehindARouterAMajorityThatLagsHoldsNoTask(t *testing.T) {
	a := newAnswered(t)
	a.proxy.Patient()
	lagging, limited := atomic.Bool{}, 0
	a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
		if lagging.CompareAndSwap(true, false) {
			limited++
			return ranOutEach(request, answer, all)
		}
		return answer
	})
	claims := a.claims(t, 10)
	reads := a.proxy.Set(proxy.Rule{Command: "find", Collection: "tasks", Contains: "majority", Times: -1})
	for _, search := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint(search), func(t *testing.T) {
			some := claims[:5]
			claims = claims[5:]
			lagging.Store(true)
			written, err := a.Tasks.Writes(t.Context(), some, search)
			require.NoError(t, err)
			for _, w := range written {
				require.True(t, w.Applied, "%+v", w)
			}

			var pings []store.Ping
			for _, c := range some {
				pings = append(pings, store.Ping{ID: c.After.ID, ExecID: "e", Until: a.Clock.Now().Add(time.Hour)})
			}
			lagging.Store(true)
			lost, err := a.Tasks.Pings(t.Context(), pings, search)
			require.NoError(t, err)
			require.Empty(t, lost)
			for _, p := range pings {
				require.False(t, p.Missed, p.ID)
			}
		})
	}
	require.Equal(t, 4, limited)
	require.Zero(t, reads.Sprung(), "what is read may not be there yet: a command waits until it is")
}

func TestBehindARouterRecordsAndTasksAreStoredThoughTheMajorityLags(t *testing.T) {
	a := newAnswered(t)
	a.proxy.Patient()
	lagging := atomic.Bool{}
	a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
		if lagging.CompareAndSwap(true, false) {
			return ranOutEach(request, answer, all)
		}
		return answer
	})
	require.NoError(t, a.ReadClock(t.Context()))
	var tasks []*model.Task
	for i := range 3 {
		tasks = append(tasks, lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint("new", i)}, a.Clock.Now()))
	}
	inserts := a.proxy.Set(proxy.Rule{Command: "insert", Collection: "tasks", Times: -1})
	lagging.Store(true)
	exists, err := a.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false}, exists)
	require.False(t, lagging.Load())
	require.Equal(t, 2, inserts.Sprung(), "the second one waits until a majority has what is there")
}

// A router that hears from several shards that their majorities lag answers with a code of its own.
func TestALagOfSeveralShardsIsNoOutage(t *testing.T) {
	a := newAnswered(t)
	a.proxy.Patient()
	var lagging atomic.Bool
	a.routed(t, func(_ bson.Raw, answer bson.D) bson.D {
		if lagging.CompareAndSwap(true, false) {
			return append(answer, field("writeConcernError", bson.D{field("code", number(64)), field("errmsg", "multiple errors reported")}))
		}
		return answer
	})
	claims := a.claims(t, 10)
	before := a.updates.Load()
	lagging.Store(true)
	written, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
	require.NoError(t, err)
	for _, w := range written {
		require.True(t, w.Applied)
	}
	require.EqualValues(t, 2, a.updates.Load()-before)
}

// A statement that the server refuses is told beside a majority that lags.
func TestARefusalBesideAMajorityThatLagsIsTold(t *testing.T) {
	a := newAnswered(t)
	a.proxy.Patient()
	claims := a.claims(t, 2)
	stale := *claims[0].Before
	stale.Rev += 5 // so the server writes nothing, and says of it what is below
	claims[0].Before = &stale
	tooLarge := field("writeErrors", bson.A{bson.D{field("index", number(0)), field("code", number(17419)), field("errmsg", "too large")}})
	a.rewrite(func(command string, answer bson.D) bson.D {
		if answer = append(answer, tooLarge); a.updates.Load() == 1 {
			return majorityLags(command, answer)
		}
		return answer
	}, nil)
	written, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
	require.NoError(t, err)
	require.Error(t, written[0].Refused)
	require.True(t, written[1].Applied)
	require.EqualValues(t, 2, a.updates.Load())
}

func TestATakeoverWhoseMajorityLagsIsNoOutage(t *testing.T) {
	for name, answerOf := range map[string]func(bson.D) bson.D{
		"a replica set": func(answer bson.D) bson.D { return majorityLags("", answer) },
		"a router": func(bson.D) bson.D {
			return bson.D{field("ok", 0.0), field("code", number(50)), field("codeName", "MaxTimeMSExpired"), field("errmsg", "operation exceeded time limit")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAnswered(t)
			a.proxy.Patient()
			var lagging atomic.Bool
			if name == "a router" {
				a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
					if request.Index(0).Key() == "findAndModify" && lagging.Load() {
						return answerOf(answer)
					}
					return answer
				})
			} else {
				a.rewrite(nil, func(command string, answer bson.D) bson.D {
					if command == "findAndModify" && lagging.Load() {
						return answerOf(answer)
					}
					return answer
				})
			}
			claims := a.claims(t, 1)
			_, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
			require.NoError(t, err)
			now := claims[0].After.WorkerStates[0].PingExpireTime.Add(time.Second)
			eff := lifecycle.ResolveOptions()
			expired := lifecycle.Expire(claims[0].After, eff, now, 0)
			after, no := lifecycle.Claim(expired, lifecycle.Claimant{WorkerID: "w2", ExecID: "e2"}, eff, now)
			require.Empty(t, no)
			after.Rev = claims[0].After.Rev + 1 // one write, one rev
			lagging.Store(true)
			_, err = a.Tasks.TakeOver(t.Context(), store.Write{Before: claims[0].After, After: after, Lapsed: "e", At: now})
			require.ErrorIs(t, err, store.ErrLags)
			require.False(t, store.Away(err), "it is no outage")
			written, err := a.Tasks.SettleClaim(t.Context(), []store.Write{{Before: claims[0].After, After: after}}, "e2")
			require.NoError(t, err)
			require.True(t, written[0].Applied)
		})
	}
}

// Two held documents share a part of what is searched, with others that are written meanwhile.
func TestBehindARouterHeldDocumentsHoldUpNoCall(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newAnswered(t)
	a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
		if slices.ContainsFunc(answer, func(e bson.E) bool { return e.Key == "code" && e.Value == number(50) }) {
			return ranOutEach(request, answer, all)
		}
		return answer
	})
	claims := a.claims(t, 40)
	session, err := a.direct.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	held := []int{0, 4}
	for _, i := range held {
		_, err = a.direct.Collection("tasks").UpdateOne(mongo.NewSessionContext(t.Context(), session),
			bson.D{field("_id", claims[i].After.ID)}, bson.D{field("$set", bson.D{field("padding", 1)})})
		require.NoError(t, err)
	}
	aborted := make(chan struct{})
	abort := time.AfterFunc(testdb.Patience, func() { // so that the test ends, too, where it fails
		_ = session.AbortTransaction(context.Background())
		close(aborted)
	})
	a.BelieveSlow() // a short time limit may find the machine slow
	written, err := a.Tasks.Writes(t.Context(), claims, testdb.Patience)
	require.NoError(t, err)
	for i, w := range written {
		require.Equal(t, slices.Contains(held, i), w.Held, "%d", i)
	}
	require.True(t, abort.Stop(), "it does not wait for the end of the transaction")
	require.NoError(t, session.AbortTransaction(t.Context()))
}

// A shard that has lost its majority costs the others nothing, whichever of the router and the shard answers first.
func TestBehindARouterAShardWithoutItsMajorityCostsTheOthersNoLease(t *testing.T) {
	lost := map[string]bool{"3": true, "7": true} // what lies there
	for name, lags := range map[string]func(request bson.Raw, answer bson.D) bson.D{
		"the router": func(request bson.Raw, answer bson.D) bson.D {
			return ranOutEach(request, answer, func(key string) bool { return lost[key] })
		},
		"the shard": func(_ bson.Raw, answer bson.D) bson.D {
			return append(answer, field("writeConcernError", bson.D{field("code", number(64)), field("errmsg", "multiple errors reported")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAnswered(t)
			lagging := atomic.Bool{}
			a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
				if lagging.Load() {
					return lags(request, answer)
				}
				return answer
			})
			claims := a.claims(t, 10)
			_, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
			require.NoError(t, err)
			lagging.Store(true)
			var pings []store.Ping
			for _, c := range claims {
				pings = append(pings, store.Ping{ID: c.After.ID, ExecID: "e", Until: a.Clock.Now().Add(time.Hour)})
			}
			missed, err := a.Tasks.Pings(t.Context(), pings, time.Second)
			require.NoError(t, err)
			require.Empty(t, missed)
			for i, p := range pings {
				if !lost[fmt.Sprint(i)] {
					require.False(t, p.Missed, "%d", i)
				} else if name == "the router" {
					require.True(t, p.Missed, "%d", i)
					require.True(t, a.Suspected(p.ID), "it is pinged alone from now on")
				}
			}
		})
	}
}

func TestBehindARouterTasksOfShardsThatLagForLongAreStoredAllTheSame(t *testing.T) {
	a := newAnswered(t)
	lagging := atomic.Bool{}
	a.routed(t, func(request bson.Raw, answer bson.D) bson.D {
		if lagging.Load() && request.Index(0).Key() == "insert" {
			return append(answer, field("writeConcernError", bson.D{field("code", number(64)), field("errmsg", "multiple errors reported")}))
		}
		return answer
	})
	require.NoError(t, a.ReadClock(t.Context()))
	tasks := []*model.Task{lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "a"}, a.Clock.Now()), lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "b"}, a.Clock.Now())}
	lagging.Store(true)
	exists, err := a.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, exists)
}
