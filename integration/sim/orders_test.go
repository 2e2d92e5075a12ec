package sim

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// orders has a process store orders of its own, each together with a task, in a transaction. Some are aborted.
func (w *world) orders(p *process, n int) {
	for i := range 3 {
		time.Sleep(p.draw.between(0, troubled/5))
		key, aborted := fmt.Sprintf("order-%d-%d", n, i), p.draw.of(0.3)
		id := model.TaskID("", work, key)
		w.mu.Lock()
		w.ordered[id] = !aborted
		w.mu.Unlock()
		if !p.sure("orders "+id, func(ctx context.Context) error {
			err := p.order(ctx, key, aborted)
			if mongo.IsDuplicateKeyError(err) {
				return nil // an earlier try was carried out
			}
			return err
		}) {
			continue
		}
		if !aborted {
			w.mu.Lock()
			w.asked.Tasks[id] = true
			w.mu.Unlock()
		}
	}
}

// order stores one, or takes it back. The driver's WithTransaction would try for two minutes, also when the process is dead.
func (p *process) order(ctx context.Context, key string, aborted bool) error {
	session, err := p.client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	if err := session.StartTransaction(); err != nil {
		return err
	}
	ctx = mongo.NewSessionContext(ctx, session)
	if _, err := p.client.Database("sim").Collection("orders").InsertOne(ctx, bson.M{"_id": key}); err != nil {
		return err
	}
	opts := append(sentBriefly(work), producer.Key(key))
	if p.w.callbacks {
		opts = append(opts, producer.Callback(p.w.receiver.callback()))
	}
	if _, err := p.producer.SendJSON(ctx, work, []byte(`{}`), opts...); err != nil {
		return err
	}
	if aborted {
		return session.AbortTransaction(ctx)
	}
	return session.CommitTransaction(ctx)
}

// checkOrders: each order has its task, each task its order, and what was aborted has neither.
func (w *world) checkOrders(f *found) {
	for id, wanted := range w.ordered {
		_, order := f.orders[id]
		task := f.Tasks[id] != nil
		switch {
		case order != task:
			w.violated("of the order %s there is: the order %v, the task %v", id, order, task)
		case order && !wanted:
			w.violated("the order %s was aborted, and is there", id)
		}
	}
}
