package claim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRareTasksAreAskedForOnceASecondWhileThereAreNone(t *testing.T) {
	var r Rarely
	require.True(t, r.ask(time.Hour))
	require.False(t, r.ask(time.Hour+rarePause-1))
	require.True(t, r.ask(time.Hour+rarePause))
	r.some = true
	require.True(t, r.ask(time.Hour+rarePause), "while there are some, always")
}
