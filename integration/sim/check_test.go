package sim

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/promises"
)

// settled waits until everything has ended.
func (w *world) settled() *promises.Stored {
	healed := time.Now()
	for {
		time.Sleep(5 * time.Second)
		f, err := w.read()
		why := ""
		if err == nil {
			why = w.waits(f)
		}
		switch {
		case err == nil && why == "":
			w.note("", "everything has ended, %v later", time.Since(healed).Round(time.Second))
			return f
		case time.Since(healed) < patience:
		case err != nil:
			w.violated("what is stored cannot be read: %v", err)
			return nil
		default:
			w.violated("after %v of peace %s", patience, why)
			return f
		}
	}
}

func (w *world) read() (*promises.Stored, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return promises.Read(ctx, w.observer.Database("sim"), w.asked)
}

// waits says what has not ended.
func (w *world) waits(f *promises.Stored) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) > 0 {
		return "handlers run"
	}
	return f.Open(w.asked, w.db.now())
}

// check looks whether the promises were kept.
func (w *world) check(f *promises.Stored) {
	if f == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Check(w.ran, func(_, format string, values ...any) { w.violated(format, values...) })
}
