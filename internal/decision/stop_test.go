package decision

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

// stopped is a planner whose engine stops while it writes.
type stopped struct {
	Planner[string]
	stop  func()
	asked int
}

func (p *stopped) write(ctx context.Context) error {
	p.asked++
	p.stop()
	return context.Cause(ctx)
}

func (*stopped) PlannedBytes(string) int    { return 1 }
func (*stopped) Tasks(string) []*model.Task { return nil }
func (*stopped) Trace(string) *model.Trace  { return nil }

func (p *stopped) Keep(ctx context.Context, _ []Case[string]) error { return p.write(ctx) }

func (p *stopped) Finish(ctx context.Context, _ []string, _ map[string]error) (map[string]error, error) {
	return nil, p.write(ctx)
}

// A write that fails is taken apart to find the one document that the server refuses. A stop is not that.
func TestAStopTakesNothingApart(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *Decider[string]) error{
		"keep": func(ctx context.Context, d *Decider[string]) error {
			kept, stays, err := d.keep(ctx, make([]Case[string], 4000))
			require.Len(t, kept, 4000, "none of them is to blame")
			require.Zero(t, stays)
			return err
		},
		"carry out": func(ctx context.Context, d *Decider[string]) error {
			_, err := d.CarryOut(ctx, make([]string, 4000))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			p := &stopped{stop: cancel}
			require.ErrorIs(t, do(ctx, New(Config[string]{Planner: p})), context.Canceled)
			require.Equal(t, 1, p.asked)
		})
	}
}
