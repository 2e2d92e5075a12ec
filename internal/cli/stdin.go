package cli

import (
	"context"
	"io"
)

// stdin reads standard input until ctx ends. A read that still waits for input then is left behind, because it cannot be
// stopped. The process ends soon.
type stdin struct {
	ctx  context.Context //nolint:containedctx // a reader has no other way to get it
	from io.Reader
	rest []byte
	err  error // after rest
}

func (s *stdin) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && s.err == nil {
		s.fill()
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *stdin) fill() {
	type read struct {
		data []byte
		err  error
	}
	came := make(chan read, 1)
	go func() {
		data := make([]byte, 64<<10)
		n, err := s.from.Read(data)
		came <- read{data[:n], err}
	}()
	select {
	case r := <-came:
		s.rest, s.err = r.data, r.err
	case <-s.ctx.Done():
		s.err = s.ctx.Err()
	}
}
