package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// The test binary is a process of these tests when this is set.
const asChild = "MSCHEDULER_TEST_AS_FLEET_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		if err := echo(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// echo repeats each line until its input ends. It fails at "fail", and after "stay" only a
// kill ends it.
func echo(ctx context.Context, in io.Reader, out io.Writer) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if lines.Text() == "fail" {
			return errors.New("as it was told")
		}
		if _, err := fmt.Fprintln(out, lines.Text()); err != nil {
			return err
		}
		if lines.Text() == "stay" {
			clock.Pause(ctx, time.Hour)
			return ctx.Err()
		}
	}
	return nil
}

// child is a command that echoes, in a process or in a goroutine of this one.
func child(t *testing.T, here bool, heard *[]string, f *Fleet) Command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := Command{Name: "echo", Path: self, Env: Env(os.Environ(), asChild+"=1"), Line: func(line []byte) error {
		text := strings.TrimSpace(string(line))
		f.Set(func() { *heard = append(*heard, text) })
		if text == "bad" {
			return errors.New("a line that nobody wants")
		}
		return nil
	}}
	if here {
		c.Func = echo
	}
	return c
}

// each runs a test with a process and with a goroutine in its place.
func each(t *testing.T, test func(t *testing.T, f *Fleet, p *Process, heard func(string) bool)) {
	for name, here := range map[string]bool{"process": false, "goroutine": true} {
		t.Run(name, func(t *testing.T) {
			var f Fleet
			var lines []string
			p, err := f.Start(child(t, here, &lines, &f))
			require.NoError(t, err)
			t.Cleanup(func() { _ = f.Stop(context.Background(), 0) }) // what is left of a test that failed
			test(t, &f, p, func(text string) bool { return slices.Contains(lines, text) })
		})
	}
}

func say(t *testing.T, p *Process, line string) {
	t.Helper()
	_, err := fmt.Fprintln(p, line)
	require.NoError(t, err)
}

func TestLinesAreHeardUntilTheProcessIsAskedToStop(t *testing.T) {
	each(t, func(t *testing.T, f *Fleet, p *Process, heard func(string) bool) {
		say(t, p, "one")
		require.NoError(t, f.Await(t.Context(), func() bool { return heard("one") }))
		require.False(t, p.Ended())
		require.NoError(t, f.Stop(t.Context(), time.Minute))
		require.True(t, p.Ended())
		require.NoError(t, p.Wait())
	})
}

func TestAwaitNamesAProcessThatEndsByItself(t *testing.T) {
	each(t, func(t *testing.T, f *Fleet, p *Process, _ func(string) bool) {
		say(t, p, "fail")
		err := f.Await(t.Context(), func() bool { return false })
		require.ErrorContains(t, err, "echo ended by itself: ")
		require.ErrorContains(t, err, "as it was told")
		require.ErrorContains(t, f.Stop(t.Context(), time.Minute), "echo did not stop cleanly: ")
	})
	each(t, func(t *testing.T, f *Fleet, p *Process, _ func(string) bool) {
		require.NoError(t, p.Close())
		require.EqualError(t, f.Await(t.Context(), func() bool { return false }), "echo ended by itself")
	})
}

func TestAnErrorOfALineIsHowTheProcessEnded(t *testing.T) {
	each(t, func(t *testing.T, f *Fleet, p *Process, _ func(string) bool) {
		say(t, p, "bad")
		_, _ = fmt.Fprintln(p, "more") // nobody reads it, so that the process ends
		require.NoError(t, p.Close())
		require.EqualError(t, p.Wait(), "a line that nobody wants")
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	var f Fleet
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	require.EqualError(t, f.Await(ctx, func() bool { return false }), "enough")
}

func TestKilledAndFrozenProcessesAreNoErrors(t *testing.T) {
	each(t, func(t *testing.T, f *Fleet, p *Process, heard func(string) bool) {
		say(t, p, "stay")
		require.NoError(t, f.Await(t.Context(), func() bool { return heard("stay") }))
		if p.cmd != nil && Supported() == nil {
			require.NoError(t, p.Freeze())
		}
		p.Kill()
		p.Kill()
		require.Error(t, p.Wait())
		require.NoError(t, f.Await(t.Context(), func() bool { return true }))
		require.NoError(t, f.Stop(t.Context(), time.Minute))
	})
}

func TestAFrozenProcessGoesOnWhereItStood(t *testing.T) {
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	var f Fleet
	var lines []string
	p, err := f.Start(child(t, false, &lines, &f))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Stop(t.Context(), time.Minute)) }()
	require.NoError(t, p.Freeze())
	say(t, p, "late")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.Await(ctx, func() bool { return len(lines) > 0 }), context.DeadlineExceeded, "it stands still")
	require.NoError(t, p.Thaw())
	require.NoError(t, f.Await(t.Context(), func() bool { return len(lines) > 0 }))
}

func TestWhoDoesNotStopInTimeIsKilledAndNamed(t *testing.T) {
	each(t, func(t *testing.T, f *Fleet, p *Process, heard func(string) bool) {
		say(t, p, "stay")
		require.NoError(t, f.Await(t.Context(), func() bool { return heard("stay") }))
		require.EqualError(t, f.Stop(t.Context(), 10*time.Millisecond), "echo did not stop in time")
		require.True(t, p.Ended())
	})
}

func TestOutputOrLogHasWhatAProcessWrote(t *testing.T) {
	var f Fleet
	c := child(t, false, nil, &f)
	c.Line = nil
	for _, log := range []string{"", filepath.Join(t.TempDir(), "log")} {
		c.Log = log
		p, err := Start(c)
		require.NoError(t, err)
		say(t, p, "one")
		say(t, p, "fail")
		err = p.Wait()
		wrote := p.Output()
		if log != "" {
			require.ErrorContains(t, err, "exit status 3; its log: "+log)
			text, err := os.ReadFile(log)
			require.NoError(t, err)
			wrote = strings.TrimSpace(string(text))
		}
		require.Equal(t, "one\nas it was told", wrote)
	}
	c.Path = filepath.Join(t.TempDir(), "missing")
	_, err := Start(c)
	require.ErrorContains(t, err, "starting echo: ")
}

func TestEnvLeavesOutTheUsersSettings(t *testing.T) {
	require.Equal(t, []string{"A=1", "MSCHEDULER_TEST_B=2", "MSCHEDULER_DATABASE=mine"},
		Env([]string{"A=1", "MSCHEDULER_DATABASE=theirs", "MSCHEDULER_TEST_B=2"}, "MSCHEDULER_DATABASE=mine"))
}
