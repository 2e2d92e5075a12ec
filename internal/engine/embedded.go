package engine

import (
	"context"
	"net"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// Embedded is our own server in this process, with the given options. It is always at
// hand.
func Embedded(opt embedded.Options) Engine {
	return Engine{Name: "embedded", Start: func(context.Context) (*Deployment, error) {
		s := &inProcess{opt: opt}
		if err := s.start(); err != nil {
			return nil, err
		}
		return &Deployment{Engine: "embedded", URI: s.server.URI(), server: s}, nil
	}}
}

// Virtual is our own server in a bubble of testing/synctest, where time is virtual. Its clients need
// [proxy.Dialer].
func Virtual(opt embedded.Options) Engine {
	return Engine{Name: "embedded", Start: func(context.Context) (*Deployment, error) {
		l := proxy.ListenPipes()
		opt.Listener = l
		s := &inProcess{opt: opt, again: func() net.Listener { return proxy.ListenPipes(l.Addr().String()) }}
		if err := s.start(); err != nil {
			return nil, err
		}
		return &Deployment{Engine: "embedded", URI: s.server.URI(), server: s}, nil
	}}
}

type inProcess struct {
	opt    embedded.Options
	again  func() net.Listener // after a restart; nil = at the same address of the network
	server *embedded.Server
}

func (s *inProcess) start() (err error) {
	s.server, err = embedded.Start(s.opt)
	return err
}

func (s *inProcess) restart(context.Context) error {
	s.opt.Addr = s.server.Addr()
	if err := s.server.Close(); err != nil {
		return err
	}
	if s.again != nil {
		s.opt.Listener = s.again()
	}
	return s.start()
}

func (s *inProcess) close() error { return s.server.Close() }
