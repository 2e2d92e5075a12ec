package builtin

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// Without it, a program reads /proc/PID/environ of the worker, whose user it has.
func TestAWorkerThatRunsProgramsHidesItsEnvironment(t *testing.T) {
	c, err := consumer.New(consumer.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, Register(c, Options{Exec: &ExecOptions{}}))
	dumpable, _, errno := syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_GET_DUMPABLE, 0, 0)
	require.Zero(t, errno)
	require.Zero(t, dumpable)
}
