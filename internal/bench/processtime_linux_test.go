package bench

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// began is when this process was young.
var began = clock.System().Monotonic()

// stat is /proc/PID/stat of a process that began 100 s after the machine, with 1.5 s of
// user and 0.25 s of system time.
const stat = "4242 (mongod (x) S 1 1 1 0 -1 4194560 9 0 0 0 150 25 0 0 20 0 33 0 10000 99 99 1"

func TestProcessorTimeIsThatOfTheServersProcess(t *testing.T) {
	s := serverStatus{PID: 4242, Process: "/usr/bin/mongod (x", Uptime: 400_000}
	used, err := processTimeOf(s, stat, "500.42 900.00\n")
	require.NoError(t, err)
	require.Equal(t, 1750*time.Millisecond, used)

	for what, wrong := range map[string]func(*serverStatus){
		"another program with the pid": func(s *serverStatus) { s.Process = "mongos" },
		"another process, older":       func(s *serverStatus) { s.Uptime = 300_000 },
		"another process, younger":     func(s *serverStatus) { s.Uptime = 500_000 },
	} {
		other := s
		wrong(&other)
		_, err := processTimeOf(other, stat, "500.42 900.00\n")
		require.ErrorIs(t, err, errElsewhere, what)
	}
	_, err = processTimeOf(s, "4242 (mongod", "500.42 900.00\n")
	require.ErrorContains(t, err, "unknown form")
}

func TestProcessorTimeOfAProcessOfThisMachineIsRead(t *testing.T) {
	name, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	s := serverStatus{
		PID: int64(os.Getpid()), Process: strings.TrimSpace(string(name)),
		Uptime: (clock.System().Monotonic() - began).Milliseconds(),
	}
	before := cpuTime()
	used, err := processTime(s)
	require.NoError(t, err)
	require.GreaterOrEqual(t, used, before-2*ticks)
	require.LessOrEqual(t, used, cpuTime()+2*ticks)

	s.PID = 0
	_, err = processTime(s)
	require.ErrorContains(t, err, "does not report its process id")
}
