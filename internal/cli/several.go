package cli

import (
	"cmp"
	"context"

	"github.com/mscheduler/mscheduler/internal/failure"
)

// several is what a command on several things prints: a line for each when it is done, or all of them as JSON at the
// end.
type several struct {
	*app
	things  string // the field of the JSON
	done    []any
	refused error // the first one
}

func (a *app) several(things string) *several {
	return &several{app: a, things: things, done: []any{}}
}

func (s *several) all() map[string]any { return map[string]any{s.things: s.done} }

// add adds one that is done.
func (s *several) add(view any, line string) error {
	if s.done = append(s.done, view); s.asJSON() {
		return nil
	}
	return s.print(line + "\n")
}

// cut returns the error that ended the command.
func (s *several) cut(err error) error { return s.partly(err, len(s.done), s.all()) }

// skip says why one is refused, for the others go on. Any other error it returns. Only the audit asks for the id.
func (s *several) skip(ctx context.Context, err error, why string, id func() string) error {
	if ctx.Err() != nil || failure.OfDatabase(err) {
		return s.cut(err)
	}
	s.refused = cmp.Or(s.refused, err)
	if s.auditing != nil {
		s.refuses(id(), why)
	}
	s.say("mscheduler: %s", why)
	return nil
}

// end prints the JSON. It fails if one was refused, which has been said.
func (s *several) end(ctx context.Context) error {
	if s.asJSON() {
		if err := s.printJSON(s.all()); err != nil {
			return err
		}
	}
	if s.refused != nil {
		return quiet(exitCode(ctx, s.refused))
	}
	return nil
}
