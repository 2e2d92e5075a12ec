package limits

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// An outage passes and is logged elsewhere. What the driver refuses does not pass.
func TestAnErrorOfTheDriverIsLoggedAndAnOutageIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		logged bool
	}{
		"the driver refuses": {errors.New("current topology does not support sessions"), true},
		"no answer":          {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t)
			var out bytes.Buffer
			s.log = zerolog.New(&out)
			s.report(c.err, "testing")
			require.Equal(t, c.logged, out.Len() > 0, out.String())
		})
	}
}
