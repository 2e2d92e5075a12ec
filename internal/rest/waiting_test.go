package rest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/pull"
)

// stock is tasks that are due. A question takes five milliseconds.
type stock struct {
	mu    sync.Mutex
	tasks int
	asked int
}

func (s *stock) put(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks += n
}

// left is how many tasks are due, and how many questions were asked.
func (s *stock) left() (tasks, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks, s.asked
}

func (s *stock) ask(context.Context, pull.FetchRequest) ([]pull.Fetched, error) {
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.tasks == 0 {
		return nil, nil
	}
	s.tasks--
	return make([]pull.Fetched, 1), nil
}

func TestManyWaitForNothingWithFewQuestionsAndAreServedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 200
		var w waiting
		var s stock
		patient, cancel := context.WithTimeout(t.Context(), maxWait)
		defer cancel()
		began := time.Now()
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				got, err := w.fetch(t.Context(), patient, pull.FetchRequest{}, always, s.ask)
				require.NoError(t, err)
				require.Len(t, got, 1)
			})
		}
		time.Sleep(10 * time.Second)
		_, asked := s.left()
		require.LessOrEqual(t, asked, workers+10*50, "each once at first, then 50 a second")
		s.put(workers)
		all.Wait()
		require.Less(t, time.Since(began)-10*time.Second, 500*time.Millisecond, "one after the other they would take a second")
		require.Zero(t, s.tasks)
		require.Empty(t, w.lines)
	})
}

func TestAfterTasksThereIsOneTurnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waiting
		var s stock
		patient, cancel := context.WithTimeout(t.Context(), maxWait)
		defer cancel()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { _, _ = w.fetch(t.Context(), patient, pull.FetchRequest{}, always, s.ask) })
		}
		time.Sleep(time.Second)
		s.put(40)
		time.Sleep(2 * time.Second)
		tasks, before := s.left()
		require.Zero(t, tasks)
		time.Sleep(10 * time.Second)
		_, after := s.left()
		require.LessOrEqual(t, after-before, 10*50)
		require.Positive(t, after-before)
		all.Wait()
	})
}

// always allows each try of a fetch.
func always(context.Context) error { return nil }
