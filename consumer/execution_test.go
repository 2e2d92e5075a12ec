package consumer

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

func TestProgressThatIsRefusedIsNotSaved(t *testing.T) {
	x := new(Execution) // of no consumer: nothing is saved
	for message, c := range map[string]struct {
		percent float64
		field   string
	}{
		"too much":                   {100.1, "percent"},
		"less than nothing":          {-1, "percent"},
		"no number":                  {math.NaN(), "percent"},
		strings.Repeat("a", 4<<10+1): {1, "message"},
		"half a character \xc3":      {1, "message"},
		"a NUL \x00":                 {1, "message"},
	} {
		var invalid *model.InvalidError
		require.ErrorAs(t, x.Progress(t.Context(), c.percent, message), &invalid, message)
		require.Equal(t, c.field, invalid.Field)
	}
}
