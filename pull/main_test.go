package pull

import (
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

// bundle is what most tests need: a puller, a producer of the same process, and a worker that
// is not pulled for, on a database of their own. No command runs out of its time.
type bundle struct {
	*fakeworker.Worker
	t      *testing.T
	db     *mongo.Database
	p      *Puller
	sender *producer.Producer
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, testdb.Patient(t))
}

func setupOn(t *testing.T, db *mongo.Database) *bundle {
	t.Helper()
	b := &bundle{Worker: fakeworker.New(t, db, ""), t: t, db: db}
	b.p, b.sender = doors(t, db, nil)
	return b
}

// doors makes a producer and a puller of it.
func doors(t *testing.T, db *mongo.Database, c model.Clock) (*Puller, *producer.Producer) {
	t.Helper()
	sender, err := producer.New(producer.Config{Database: db, Clock: c})
	require.NoError(t, err)
	testdb.Closes(t, sender.Close)
	return New(sender), sender
}

func (b *bundle) send(args mail, opts ...producer.Option) producer.Sent {
	b.t.Helper()
	s, err := producer.Send(b.t.Context(), b.sender, mailType, args, opts...)
	require.NoError(b.t, err)
	return s
}

func (b *bundle) get(id string) *model.Task {
	b.t.Helper()
	task, err := b.sender.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return task
}
