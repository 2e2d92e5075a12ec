package proxy

import (
	"net"
	"sync"
	"time"
)

// link is one client's connection and the one to the server behind it. A driver sends
// one command at a time on a connection and waits for the answer.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	once           sync.Once
	ended          chan struct{}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close() // it is to be broken
		_ = l.server.Close()
	})
}

func (l *link) run() {
	defer func() {
		l.close()
		l.proxy.mu.Lock()
		delete(l.proxy.conns, l)
		l.proxy.mu.Unlock()
	}()
	for {
		m, err := readMessage(l.client)
		if err != nil || !l.pass(m) {
			return
		}
	}
}

// pass carries one command over and its answer back; false when the connection is to
// end.
func (l *link) pass(m message) bool {
	name, collection := m.command()
	if l.patient() {
		m.prolong(time.Hour)
	}
	fate, trap := l.proxy.fate(name), l.proxy.trapped(m, name, collection)
	if trap != nil {
		fate.Do = trap.rule.Do
	}
	if !l.wait(fate.Before) {
		return false
	}
	switch fate.Do {
	case CutBefore:
		l.close() // first, so that who waits for the trap finds the connection broken
		trap.spring()
		return false
	case HoldBefore:
		trap.spring()
		if !l.hold(trap) {
			return false
		}
	case Pass:
		trap.spring()
	case Refuse:
		trap.spring()
		fate.Answer = trap.rule.refusal()
	}
	if fate.Answer != nil && !m.open() {
		_, err := l.client.Write(m.answered(fate.Answer))
		return err == nil
	}
	if _, err := l.server.Write(m); err != nil {
		return false
	}
	if m.open() {
		return true // nobody waits for an answer
	}
	for {
		answer, err := readMessage(l.server)
		if err != nil {
			return false
		}
		if !l.wait(fate.After) {
			return false
		}
		switch fate.Do {
		case CutAfter:
			l.close()
			trap.spring()
			return false
		case HoldAfter:
			trap.spring()
			if !l.hold(trap) {
				return false
			}
		case RefuseAfter:
			trap.spring()
			answer = m.answered(trap.rule.refusal())
		}
		if _, err := l.client.Write(l.rewritten(m, answer)); err != nil {
			return false
		}
		if !answer.open() {
			return true
		}
	}
}

func (l *link) hold(t *Trap) bool {
	select {
	case <-t.release:
		return true
	case <-l.ended:
		return false
	}
}

// wait is a delay of the network.
func (l *link) wait(d time.Duration) bool {
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ended:
		return false
	}
}

func (l *link) patient() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	return l.proxy.patient
}

func (l *link) rewritten(request, m message) message {
	l.proxy.mu.Lock()
	f := l.proxy.rewrite
	l.proxy.mu.Unlock()
	_, command, wrong := request.body()
	_, doc, err := m.body()
	if f == nil || wrong != nil || err != nil {
		return m
	}
	return m.withBody(f(command, doc))
}
