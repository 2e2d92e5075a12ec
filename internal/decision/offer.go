package decision

import (
	"slices"
	"sync"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// workers are those of this process to which tasks are offered that an engine of this process lets
// run.
var workers struct {
	sync.Mutex
	list []*worker
}

type worker struct {
	namespace store.Namespace
	take      func([]*model.Task)
}

// Offers has take called with tasks of the database that may run, as they were just written, until
// stop is called. take must not block; whatever it leaves is found as all tasks are.
func Offers(st *store.Store, take func([]*model.Task)) (stop func()) {
	w := &worker{st.Namespace(), take}
	workers.Lock()
	defer workers.Unlock()
	workers.list = append(workers.list, w)
	return func() {
		workers.Lock()
		defer workers.Unlock()
		workers.list = slices.DeleteFunc(workers.list, func(o *worker) bool { return o == w })
	}
}

// Offer offers tasks to the workers of this process, before they would hear of them.
func Offer(st *store.Store, tasks []*model.Task) {
	if len(tasks) == 0 {
		return
	}
	workers.Lock()
	defer workers.Unlock()
	for _, w := range workers.list {
		if w.namespace == st.Namespace() {
			w.take(tasks)
		}
	}
}
