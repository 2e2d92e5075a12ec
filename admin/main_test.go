package admin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestMain(m *testing.M) { testdb.Main(m) }

type mail struct {
	To string `json:"to"`
}

type receipt struct {
	Bytes int `json:"bytes"`
}

var mailType = model.NewType[mail, receipt]("mail")

// bundle is an admin, a producer and a worker on a database of their own.
type bundle struct {
	*fakeworker.Worker
	t  *testing.T
	db *mongo.Database
	a  *Admin
	p  *producer.Producer
}

func setup(t *testing.T) *bundle {
	t.Helper()
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	testdb.Closes(t, p.Close)
	return &bundle{Worker: fakeworker.New(t, db, ""), t: t, db: db, a: New(p), p: p}
}

func (b *bundle) send(args mail, opts ...producer.Option) producer.Sent {
	b.t.Helper()
	s, err := producer.Send(b.t.Context(), b.p, mailType, args, opts...)
	require.NoError(b.t, err)
	return s
}

func (b *bundle) get(id string) *model.Task {
	b.t.Helper()
	task, err := b.p.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return task
}

func (b *bundle) requireResult(want receipt, s producer.Sent) {
	b.t.Helper()
	got, err := producer.Await(b.t.Context(), b.p, mailType, s)
	require.NoError(b.t, err)
	require.Equal(b.t, want, got)
}

func items(n int) []producer.Item[mail] {
	out := make([]producer.Item[mail], n)
	for i := range out {
		out[i].Options = []producer.Option{producer.Key(fmt.Sprint(i))}
	}
	return out
}
