package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/server"
)

const (
	// pullers is how many workers fetch over HTTP at the same time.
	pullers = 200
	// perFetch is how many tasks such a worker asks for at once, as a pool of ten threads does.
	perFetch = 10
	// fetchWait is how long a fetch waits for tasks. One that waits when the last task ends is cut off.
	fetchWait = "5s"
)

// pulls drains a backlog with a worker in the process, and with many that fetch over the REST API.
func pulls(c *Config) []part {
	n := c.or(c.Tasks, 50_000, 10_000)
	near := drain(c, "pull/process", 1, "")
	near.load = func(ctx context.Context, r *run) error { return r.backlog(ctx, n) }
	near.raw.tasks = n
	near.measure = func(ctx context.Context, r *run) error {
		err := r.awaitEnds(ctx, "draining", n)
		r.ended()
		return err
	}
	parts := []part{near}
	for _, v := range []struct {
		name string
		most int
	}{{"pull/http", perFetch}, {"pull/one", 1}} {
		parts = append(parts, part{
			name: v.name, concurrency: pullers, usage: true,
			load: func(ctx context.Context, r *run) error {
				r.counts = r.meter.totals
				return r.backlog(ctx, n)
			},
			measure: func(ctx context.Context, r *run) error { return r.pull(ctx, n, v.most) },
			after: func(r *run) {
				r.compareWith("pull/process", fmt.Sprintf("%d workers over HTTP, %d tasks a fetch: ", pullers, v.most)+"%.2f of the rate in the process")
			},
		})
	}
	return parts
}

// pull has workers fetch and complete tasks over HTTP until all have ended.
func (r *run) pull(ctx context.Context, n, most int) (err error) {
	api, err := server.New(server.Config{Database: r.db.DB, NoTokens: true})
	if err != nil {
		return err
	}
	listen, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := &http.Server{Handler: api, ReadHeaderTimeout: stopTime}
	var running errgroup.Group
	running.Go(func() error { return served.Serve(listen) })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pullers}}
	defer func() {
		client.CloseIdleConnections()
		api.Stop()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		err = errors.Join(err, served.Shutdown(end), api.Close(end))
		if stopped := running.Wait(); !errors.Is(stopped, http.ErrServerClosed) {
			err = errors.Join(err, stopped)
		}
	}()

	show := r.progress("draining")
	going, done := context.WithCancel(ctx)
	defer done()
	var ended atomic.Int64
	var last time.Duration
	var mu sync.Mutex
	count := func(some int) {
		mu.Lock()
		defer mu.Unlock()
		last = r.cfg.Clock.Monotonic()
		all := ended.Add(int64(some))
		show(int(all), n)
		if all >= int64(n) {
			done()
		}
	}
	workers, working := errgroup.WithContext(going)
	began := r.cfg.Clock.Monotonic()
	for i := range pullers {
		w := &puller{client: client, url: "http://" + listen.Addr().String() + "/api/v1/pull/", name: fmt.Sprint("puller-", i), most: most}
		workers.Go(func() error { return w.run(working, count) })
	}
	err = workers.Wait()
	if all := int(ended.Load()); all >= n {
		err = nil // what waited was cut off
	}
	mu.Lock()
	defer mu.Unlock()
	r.res.measured(int(ended.Load()), last-began)
	return err
}

// puller is a worker that fetches over HTTP, and ends what it fetched with one request.
type puller struct {
	client    *http.Client
	url, name string
	most      int
}

func (w *puller) run(ctx context.Context, ended func(int)) error {
	for ctx.Err() == nil {
		var got struct {
			Tasks []struct {
				Handle string `json:"handle"`
			} `json:"tasks"`
		}
		err := w.call(ctx, "fetch", map[string]any{"worker_id": w.name, "types": []string{noop.Name()}, "max": w.most, "wait": fetchWait}, &got)
		if err != nil {
			return err
		}
		if len(got.Tasks) == 0 {
			continue
		}
		var out struct {
			Complete []struct {
				Lost  bool   `json:"lost"`
				Error string `json:"error"`
			} `json:"complete"`
		}
		if err := w.call(ctx, "ends", map[string]any{"complete": got.Tasks}, &out); err != nil {
			return err
		}
		for _, e := range out.Complete {
			if e.Lost || e.Error != "" {
				return fmt.Errorf("an execution could not be completed; lost: %v, error: %q", e.Lost, e.Error)
			}
		}
		ended(len(got.Tasks))
	}
	return nil
}

// call sends a request and reads the answer.
func (w *puller) call(ctx context.Context, verb string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+verb, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s: %s", verb, res.Status, text)
	default:
		return json.Unmarshal(text, answer)
	}
}
