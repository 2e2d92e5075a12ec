//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/engine"
)

// embeddedProcess is the embedded server as a process.
func embeddedProcess(t *testing.T) *engine.Deployment {
	t.Helper()
	server, err := engines()[0].Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// until repeats f until it says yes.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !f() {
		require.True(t, clock.Pause(ctx, 20*time.Millisecond), "waited in vain: %s", what)
	}
}

const outOfDiskSpace = 14031

func TestAServerWithoutRoomRefusesWritesAndGoesOnWhenThereIs(t *testing.T) {
	t.Parallel()
	server := embeddedProcess(t)
	things := engine.Fresh(t, engine.Connect(t, server.URI)).Collection("things")
	written := 0
	write := func() error {
		_, err := things.InsertOne(t.Context(), bson.D{{Key: "_id", Value: written}, {Key: "text", Value: strings.Repeat("x", 10_000)}})
		if err == nil {
			written++
		}
		return err
	}
	require.NoError(t, write())
	require.NoError(t, syscall.Kill(server.PID(), diskFull))
	until(t, "a write is refused", func() bool {
		err := write()
		if err != nil {
			refused := mongo.ServerError(nil)
			require.ErrorAs(t, err, &refused)
			require.True(t, refused.HasErrorCode(outOfDiskSpace), "%v", err)
		}
		return err != nil
	})
	require.NoError(t, syscall.Kill(server.PID(), diskRoom))
	until(t, "a write is accepted", func() bool { return write() == nil })
	require.NoError(t, server.Restart(t.Context()))
	n, err := things.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, written, n)
}

// Each trouble is felt, and passes.
func TestAProcessReachesTheServerAgainAfterEachTrouble(t *testing.T) {
	t.Parallel()
	m, err := findMembers(t.Context(), embeddedProcess(t).URI)
	require.NoError(t, err)
	require.NotEmpty(t, m.set, "the proxies are found as members are")
	for i, trouble := range slices.Concat(troubles, troubles) {
		hears := i < len(troubles)
		t.Run(fmt.Sprint(trouble.name, ", the process hears of its end: ", hears), func(t *testing.T) {
			t.Parallel()
			n, err := m.way()
			require.NoError(t, err)
			t.Cleanup(n.close)
			admin := engine.Connect(t, n.uri).Database("admin")
			ping := func(limit time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				return admin.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
			}
			require.NoError(t, ping(patience))
			require.True(t, n.begin(trouble))
			require.False(t, n.begin(trouble), "one at a time")
			if trouble.fate == nil || trouble.fate().Before == forGood || trouble.fate().After == forGood {
				require.Error(t, ping(200*time.Millisecond))
			}
			n.mend(hears)
			until(t, "it is well again", func() bool { return ping(time.Second) == nil })
		})
	}
}
