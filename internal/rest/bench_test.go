package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var benched = model.NewType[int, model.None]("benched")

// preloaded is a database with tasks that are due.
func preloaded(b *testing.B, n int) *mongo.Database {
	db := testdb.New(b)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(b, err)
	items := make([]producer.Item[int], 0, 1000)
	for i := range n {
		items = append(items, producer.Item[int]{Args: i})
		if len(items) == cap(items) || i == n-1 {
			_, err := producer.SendMany(b.Context(), p, benched, items)
			require.NoError(b, err)
			items = items[:0]
		}
	}
	require.NoError(b, p.Close(b.Context()))
	return db
}

// BenchmarkPull compares workers that pull over HTTP with one worker in the process: a third of its rate is
// wanted.
func BenchmarkPull(b *testing.B) {
	b.Run("in the process", func(b *testing.B) {
		db := preloaded(b, b.N)
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		c, err := consumer.New(consumer.Config{Database: db, Concurrency: 200})
		require.NoError(b, err)
		var done atomic.Int64
		require.NoError(b, consumer.Handle(c, benched, func(context.Context, *consumer.Task[int]) (model.None, error) {
			if done.Add(1) == int64(b.N) {
				cancel()
			}
			return model.None{}, nil
		}))
		b.ResetTimer()
		require.NoError(b, c.Run(ctx))
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	})
	for _, v := range []struct{ workers, max int }{{200, 1}, {200, 10}} {
		b.Run(fmt.Sprintf("%d workers over HTTP, %d tasks a fetch", v.workers, v.max), func(b *testing.B) {
			db := preloaded(b, b.N)
			api, err := rest.New(rest.Config{Database: db, NoTokens: true})
			require.NoError(b, err)
			s := httptest.NewServer(api)
			defer s.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: v.workers}}
			defer client.CloseIdleConnections()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range v.workers {
				all.Go(func() { pullAll(b, client, s.URL, fmt.Sprint("w", i), v.max, &left) })
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// pullAll works until no task is left.
func pullAll(b *testing.B, client *http.Client, url, worker string, most int, left *atomic.Int64) {
	call := func(verb string, body, into any) {
		data, _ := json.Marshal(body)
		res, err := client.Post(url+"/api/v1/pull/"+verb, "application/json", bytes.NewReader(data)) //nolint:noctx // it ends with the server
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(res.Body)
			b.Errorf("%s: %s", verb, text)
		} else if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			b.Error(err)
		}
	}
	for left.Load() > 0 && !b.Failed() {
		var got struct {
			Tasks []struct{ Handle string }
		}
		call("fetch", map[string]any{"worker_id": worker, "types": []string{benched.Name()}, "max": most}, &got)
		for _, task := range got.Tasks {
			var ended struct{}
			call("complete", map[string]any{"handle": task.Handle}, &ended)
			left.Add(-1)
		}
	}
}
