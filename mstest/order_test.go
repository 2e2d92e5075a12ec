package mstest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// Order is shipped to a customer who pays for it.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// Shipping ends with the number of the shipment.
var Shipping = model.NewType[Order, string]("order.ship")

// Shop is what the outside world does for an order.
type Shop struct {
	Charge func(ctx context.Context, id string, cents int) (receipt string, err error)
	Ship   func(ctx context.Context, id string) (number string, err error)
}

// HandleShipping registers the handler. Whatever fails, and wherever it is run next, a step
// that is done stays done. What it writes in the end and the task's end happen together.
func HandleShipping(c *consumer.Consumer, orders *mongo.Collection, shop Shop) error {
	return consumer.Handle(c, Shipping, func(ctx context.Context, t *consumer.Task[Order]) (string, error) {
		receipt, err := consumer.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return shop.Charge(ctx, t.TaskID+"/charge", t.Args.Cents)
		})
		if err != nil {
			return "", err
		}
		number, err := consumer.Step(ctx, "ship", func(ctx context.Context) (string, error) {
			return shop.Ship(ctx, t.TaskID+"/ship")
		})
		if err != nil {
			return "", err
		}
		return number, orders.Database().Client().UseSession(ctx, func(ctx context.Context) error {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
				if _, err := orders.InsertOne(ctx, bson.M{"_id": t.Args.ID, "receipt": receipt, "shipment": number}); err != nil {
					return nil, err
				}
				return nil, t.CompleteIn(ctx, number)
			})
			return err
		})
	})
}

func TestACustomerIsChargedOnceHoweverOftenShippingFails(t *testing.T) {
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	sent, err := producer.Send(t.Context(), p, Shipping, Order{ID: "17", Cents: 4200}, producer.Key("17"))
	require.NoError(t, err)

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	charged, tries := 0, 0
	require.NoError(t, HandleShipping(c, db.Collection("orders"), Shop{
		Charge: func(_ context.Context, _ string, cents int) (string, error) {
			charged += cents
			return "receipt 1", nil
		},
		Ship: func(context.Context, string) (string, error) {
			if tries++; tries < 3 {
				return "", errors.New("no van")
			}
			return "shipment 9", nil
		},
	}))
	require.Equal(t, 1, mstest.Drain(t, c, mstest.SkipTime()).Succeeded)
	require.Equal(t, 4200, charged)
	require.Equal(t, 3, tries)

	number, err := producer.Await(t.Context(), p, Shipping, sent)
	require.NoError(t, err)
	require.Equal(t, "shipment 9", number)
	var order bson.M
	require.NoError(t, db.Collection("orders").FindOne(t.Context(), bson.M{"_id": "17"}).Decode(&order))
	require.Equal(t, bson.M{"_id": "17", "receipt": "receipt 1", "shipment": "shipment 9"}, order)
}
