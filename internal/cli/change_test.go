package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/bulk"
)

func TestOfManyReasonsToLeaveTasksAloneTheMostFrequentComeFirst(t *testing.T) {
	c := bulk.Counts{Skipped: 11, Reasons: map[string]int64{"for other reasons": 5, "reason 3": 2, "reason 0": 1, "reason 1": 1, "reason 2": 1, "reason 4": 1}}
	require.Equal(t, ", 11 skipped:\n  5: for other reasons\n  2: reason 3\n  1: reason 0\n  1: reason 1\n  1: reason 2\n  1: reason 4", skippedText(&c))
}
