package engine

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/embedded"
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

type inProcess struct {
	opt    embedded.Options
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
	return s.start()
}

func (s *inProcess) close() error { return s.server.Close() }
