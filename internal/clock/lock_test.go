package clock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
)

func TestALockExcludesOthersAndLetsTimePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l clock.Lock
		var all sync.WaitGroup
		began, inside, most := time.Now(), 0, 0
		for range 10 {
			all.Go(func() {
				l.Lock()
				defer l.Unlock()
				inside++
				most = max(most, inside)
				time.Sleep(time.Minute)
				inside--
			})
		}
		synctest.Wait()
		require.False(t, l.TryLock())
		all.Wait()
		require.Equal(t, 1, most)
		require.Equal(t, 10*time.Minute, time.Since(began))
		require.True(t, l.TryLock())
		l.Unlock()
	})
}
