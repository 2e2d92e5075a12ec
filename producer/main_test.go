package producer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

type mail struct {
	To string `json:"to"`
}

type receipt struct {
	Bytes int `json:"bytes"`
}

var mailType = model.NewType[mail, receipt]("mail")

// bundle is what most tests need: a producer on a database of its own, and a worker on
// the same database.
type bundle struct {
	*fakeworker.Worker
	t  *testing.T
	db *mongo.Database
	p  *Producer
}

func setup(t *testing.T, configure ...func(*Config)) *bundle {
	t.Helper()
	c := Config{Database: testdb.New(t)}
	for _, f := range configure {
		f(&c)
	}
	p, err := New(c)
	require.NoError(t, err)
	testdb.Closes(t, p.Close)
	return &bundle{Worker: fakeworker.New(t, c.Database, c.Prefix), t: t, db: c.Database, p: p}
}

func (b *bundle) send(args mail, opts ...Option) Sent {
	b.t.Helper()
	s, err := Send(b.t.Context(), b.p, mailType, args, opts...)
	require.NoError(b.t, err)
	return s
}

func (b *bundle) get(id string) *model.Task {
	b.t.Helper()
	task, err := b.p.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return task
}
