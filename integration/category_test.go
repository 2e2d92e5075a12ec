package integration

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A worker serves a category: the types that belong to it when it starts, those that join
// while it runs, and no longer those that leave. A type with a handler of its own keeps it.
func TestAWorkerServesTheTypesOfItsCategoryAsTheyComeAndGo(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		put := func(code, category string, version int64) {
			_, err := a.admin.PutType(t.Context(), model.TaskType{Code: code, Category: category, Version: version})
			require.NoError(t, err)
		}
		send := func(typ, key string) string {
			sent, err := a.p.SendJSON(t.Context(), typ, json.RawMessage(`{"n": 7}`), producer.Key(key))
			require.NoError(t, err)
			return sent.ID
		}
		put("mail.first", "post", 0)
		put(chaosWork.Name(), "post", 0)
		waits := send("mail.second", "before it joins")
		h := a.hire("w", double, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				if err := consumer.Handle(c, chaosWork, double); err != nil {
					return err
				}
				return consumer.HandleCategory(c, "post", func(_ context.Context, x *consumer.Execution) (any, error) {
					return map[string]any{"type": x.Type, "args": x.RawArgs()}, nil
				})
			}
		})
		result := func(id string) string {
			return string(codec.ValueJSON(a.awaitStatus(id, model.StatusSuccess).Result))
		}
		require.JSONEq(t, `{"type": "mail.first", "args": {"n": 7}}`, result(send("mail.first", "1")))
		require.JSONEq(t, "4", result(a.sendKey("own", 2).ID), "its own handler")
		require.Equal(t, model.StatusNew, a.get(waits).Status)

		put("mail.second", "post", 0)
		require.JSONEq(t, `{"type": "mail.second", "args": {"n": 7}}`, result(waits))
		a.awaitStatus(send("mail.second", "2"), model.StatusSuccess)
		a.awaitWorkerTypes("w", chaosWork.Name(), "mail.first", "mail.second")

		put("mail.first", "parcels", 1)
		a.awaitWorkerTypes("w", chaosWork.Name(), "mail.second")
		left := send("mail.first", "3")
		a.awaitStatus(send("mail.second", "3"), model.StatusSuccess)
		require.Equal(t, model.StatusNew, a.get(left).Status)
		put("mail.first", "post", 2)
		a.awaitStatus(left, model.StatusSuccess)
		require.NoError(t, h.stop())
	})
}

// awaitWorkerTypes waits until the worker says that it serves exactly these.
func (a *arena) awaitWorkerTypes(id string, types ...string) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		workers, err := a.store.Workers.List(a.t.Context())
		require.NoError(a.t, err)
		for _, w := range workers {
			if w.ID == id && len(w.Types) == len(types) {
				require.Subset(a.t, types, w.Types)
				return ""
			}
		}
		return "a worker with these types"
	})
}

func TestACategoryWithoutTypesIsServedOnceItHasSome(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.hire("w", nil, func(c *handConfig) {
			c.PollInterval = time.Hour
			c.register = func(c *consumer.Consumer) error {
				return consumer.HandleCategory(c, "post", func(context.Context, *consumer.Execution) (any, error) { return nil, nil })
			}
		})
		a.awaitWorkerTypes("w")
		_, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), Category: "post"})
		require.NoError(t, err)
		a.awaitStatus(a.sendKey("k", 1).ID, model.StatusSuccess)
	})
}

func TestABadCategoryIsRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		c, err := consumer.New(consumer.Config{Database: a.db})
		require.NoError(t, err)
		h := func(context.Context, *consumer.Execution) (any, error) { return nil, nil }
		require.ErrorIs(t, consumer.HandleCategory(c, "", h), model.ErrInvalid)
		require.ErrorIs(t, consumer.HandleCategory(c, "post", nil), model.ErrInvalid)
		require.ErrorIs(t, consumer.HandleCategory(c, "post", h, consumer.MaxConcurrency(0)), model.ErrInvalid)
		require.NoError(t, consumer.HandleCategory(c, "post", h))
		require.ErrorIs(t, consumer.HandleCategory(c, "post", h), model.ErrInvalid)
		_, err = consumer.New(consumer.Config{Database: a.db, Tenants: []string{"a/b"}, Creators: []string{""}})
		require.ErrorContains(t, err, "tenants[0]")
		require.ErrorContains(t, err, "creators[0]")
	})
}
