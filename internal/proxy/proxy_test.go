package proxy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// setup is a proxy with a database behind it and a collection through it, whose driver
// repeats nothing by itself.
func setup(t *testing.T) (*proxy.Proxy, *mongo.Collection, *mongo.Collection) {
	t.Helper()
	direct := testdb.New(t)
	p, err := proxy.Start(testdb.URI(t))
	require.NoError(t, err)
	client, err := mongo.Connect(options.Client().ApplyURI(p.URI()).SetRetryWrites(false).SetRetryReads(false).
		SetServerSelectionTimeout(testdb.Patience))
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Clear()
		require.NoError(t, client.Disconnect(context.Background()))
		p.Close()
	})
	return p, client.Database(direct.Name()).Collection("c"), direct.Collection("c")
}

func count(t *testing.T, c *mongo.Collection) int {
	t.Helper()
	n, err := c.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return int(n)
}

func TestCutBeforeMeansTheServerNeverSawIt(t *testing.T) {
	p, c, direct := setup(t)
	trap := p.Set(proxy.Rule{Command: "insert", Do: proxy.CutBefore})
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.Error(t, err)
	require.Equal(t, 0, count(t, direct))
	<-trap.Hit() // a moment after the connection broke
	require.Equal(t, 1, trap.Sprung())
	_, err = c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err, "a trap springs once")
}

func TestAnAnswerMayComeFromTheProxy(t *testing.T) {
	p, c, direct := setup(t)
	full, err := bson.Marshal(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 14031}, {Key: "errmsg", Value: "no space"}})
	require.NoError(t, err)
	p.Fates(func(command string) proxy.Fate {
		if command == "insert" {
			return proxy.Fate{Answer: full}
		}
		return proxy.Fate{}
	})
	_, err = c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	var refused mongo.CommandError
	require.ErrorAs(t, err, &refused)
	require.EqualValues(t, 14031, refused.Code)
	require.Equal(t, 0, count(t, direct), "the server never saw it")
}

func TestARefusedCommandIsCarriedOutOrNot(t *testing.T) {
	for do, stored := range map[proxy.Action]int{proxy.Refuse: 0, proxy.RefuseAfter: 1} {
		p, c, direct := setup(t)
		p.Set(proxy.Rule{Command: "insert", Do: do, Code: 13})
		_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
		var refused mongo.CommandError
		require.ErrorAs(t, err, &refused)
		require.EqualValues(t, 13, refused.Code)
		require.Equal(t, stored, count(t, direct))
	}
}

func TestCutAfterMeansTheServerDidIt(t *testing.T) {
	p, c, direct := setup(t)
	p.Set(proxy.Rule{Command: "insert", Do: proxy.CutAfter})
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.Error(t, err)
	require.Equal(t, 1, count(t, direct))
}

func TestATrapTakesTheCommandsItsRuleNames(t *testing.T) {
	p, c, direct := setup(t)
	trap := p.Set(proxy.Rule{Command: "insert", Collection: "c", Contains: "wanted", Lacks: "not", Skip: 1, Do: proxy.CutBefore})
	for i, text := range []string{"other", "wanted", "not wanted", "wanted", "wanted"} {
		_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "text", Value: text}})
		require.Equal(t, i == 3, err != nil, "insert %d: %v", i, err)
	}
	require.Equal(t, 1, trap.Sprung())
	require.Equal(t, 4, count(t, direct))
}

func TestAHeldAnswerComesWhenReleased(t *testing.T) {
	p, c, direct := setup(t)
	trap := p.Set(proxy.Rule{Command: "insert", Do: proxy.HoldAfter})
	done := make(chan error, 1)
	go func() {
		_, err := c.InsertOne(context.Background(), bson.D{{Key: "_id", Value: 1}})
		done <- err
	}()
	<-trap.Hit()
	require.Equal(t, 1, count(t, direct), "the server has done it")
	require.Empty(t, done, "and the client does not know")
	trap.Release()
	require.NoError(t, <-done)
}

func TestAHeldCommandReachesTheServerWhenReleased(t *testing.T) {
	p, c, direct := setup(t)
	trap := p.Set(proxy.Rule{Command: "insert", Do: proxy.HoldBefore})
	done := make(chan error, 1)
	go func() {
		_, err := c.InsertOne(context.Background(), bson.D{{Key: "_id", Value: 1}})
		done <- err
	}()
	<-trap.Hit()
	require.Equal(t, 0, count(t, direct))
	trap.Release()
	require.NoError(t, <-done)
	require.Equal(t, 1, count(t, direct))
}

func TestACutNetworkLetsNobodyThroughUntilMended(t *testing.T) {
	p, c, _ := setup(t)
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	p.Cut()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, c.Database().RunCommand(short, bson.D{{Key: "ping", Value: 1}}).Err())
	p.Mend()
	require.NoError(t, c.Database().RunCommand(t.Context(), bson.D{{Key: "ping", Value: 1}}).Err())
}

func TestAnswersCanBeRewritten(t *testing.T) {
	p, c, _ := setup(t)
	p.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		if command != "buildInfo" {
			return answer
		}
		doc, err := bson.Marshal(bson.D{{Key: "ok", Value: 1}, {Key: "version", Value: "rewritten and so of another length"}})
		if err != nil {
			return answer
		}
		return doc
	})
	var info struct{ Version string }
	require.NoError(t, c.Database().RunCommand(t.Context(), bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))
	require.Equal(t, "rewritten and so of another length", info.Version)
}
