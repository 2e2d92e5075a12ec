package clock

import "sync"

// Lock excludes others as a [sync.Mutex] does, while its holder waits for the database. Who waits for a
// Mutex keeps time from passing in a bubble of testing/synctest; who waits for a Lock does not. The zero
// value is free.
type Lock struct {
	mu   sync.Mutex
	held chan struct{} // closed when it is released; nil = it is free
}

// Lock waits until the lock is free, and takes it.
func (l *Lock) Lock() {
	for {
		held := l.take()
		if held == nil {
			return
		}
		<-held
	}
}

// TryLock takes the lock if it is free.
func (l *Lock) TryLock() bool { return l.take() == nil }

// take takes the lock if it is free; else it returns what tells when that may be.
func (l *Lock) take() (held chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held = l.held; held == nil {
		l.held = make(chan struct{})
	}
	return held
}

// Unlock frees the lock.
func (l *Lock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held)
	l.held = nil
}
