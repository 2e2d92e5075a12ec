package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A table has room for the beginning of an error. The page of one run has all of it.
func TestThePageOfARunHasTheWholeError(t *testing.T) {
	reason := "connecting to the warehouse: " + strings.Repeat("no route to host, ", 10) + "giving up"
	run := &schedule.Run{Error: reason}
	require.Contains(t, runFields(run, &schedule.Rule{}, time.Now()), reason)
}
