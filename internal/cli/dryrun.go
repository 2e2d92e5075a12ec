package cli

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/producer"
)

// dryProducer checks tasks as any producer does and stores nothing: its middleware
// answers in the database's place, so no database is needed. The client is never used
// for a call; the producer only wants to see one.
func (a *app) dryProducer() (*producer.Producer, error) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true"))
	if err != nil {
		return nil, fmt.Errorf("preparing a dry run: %w", err)
	}
	a.onClose(func(ctx context.Context) { _ = client.Disconnect(ctx) })
	return producer.New(producer.Config{
		Database: client.Database("dry"), SecretKey: a.Env.SecretKey,
		Middleware: []producer.Middleware{func(producer.SendFunc) producer.SendFunc {
			return func(_ context.Context, drafts []*producer.Draft) ([]producer.Sent, error) {
				return make([]producer.Sent, len(drafts)), nil
			}
		}},
	})
}
