package callback

import "sync"

// receivers keeps one that does not answer from taking all the slots of a process: each
// call of it holds one for the whole timeout, while those of others would take
// milliseconds. As long as its last call went unanswered, only so many are made at once.
type receivers struct {
	most int // calls at once of one that is silent; at least 1

	mu    sync.Mutex
	hosts map[string]*host
}

type host struct {
	calls  int
	silent bool
}

// remembered bounds the hosts that are known: beyond it all are forgotten, and learned again.
const remembered = 10_000

// enter begins a call; ok is false when the host is silent and has its share. leave ends it.
func (r *receivers) enter(name string) (leave func(answered bool), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[name]
	if h == nil {
		if r.hosts == nil || len(r.hosts) >= remembered {
			r.hosts = map[string]*host{}
		}
		h = &host{}
		r.hosts[name] = h
	}
	if h.silent && h.calls >= r.most {
		return nil, false
	}
	h.calls++
	return func(answered bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		h.calls--
		h.silent = !answered
		if h.calls == 0 && answered && r.hosts[name] == h {
			delete(r.hosts, name)
		}
	}, true
}
