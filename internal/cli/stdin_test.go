package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestAnInterruptEndsACommandThatWaitsForInput(t *testing.T) {
	s := newSession(t)
	s.ok("send", "exec", "--args", `{"argv":["true"]}`)
	for _, c := range []struct {
		args  []string
		write string // when it has been read, or the text is said, the command waits for more
		said  string
		says  string
	}{
		{[]string{"task", "cancel", "--type", "exec"}, "", "[y/N]", "interrupted; nothing was changed"},
		{[]string{"send", "--file", "-"}, "\n", "", "stopped before the end of the file"},
		{[]string{"flow", "start", "-f", "-"}, "key: k\n", "", "mscheduler: interrupted"},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			in, person := io.Pipe()
			defer func() { require.NoError(t, person.Close()) }()
			var out, errs lockedBuffer
			p := s.process(c.args, &out, &errs)
			p.Stdin, p.StdinTerminal = in, true
			ctx, interrupt := context.WithCancel(t.Context())
			code := make(chan int, 1)
			go func() { code <- Run(ctx, p) }()
			if c.write != "" {
				_, err := io.WriteString(person, c.write)
				require.NoError(t, err)
			}
			s.eventually("the command waits", func() bool { return strings.Contains(errs.String(), c.said) })
			interrupt()
			require.Equal(t, ExitInterrupted, testdb.Receive(t, code), errs.String())
			require.Contains(t, errs.String(), c.says)
		})
	}
}

func TestStandardInputComesWhole(t *testing.T) {
	want := bytes.Repeat([]byte("a line\n"), 30_000)
	got, err := io.ReadAll(&stdin{ctx: t.Context(), from: iotest.DataErrReader(bytes.NewReader(want))})
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = io.ReadAll(&stdin{ctx: t.Context(), from: iotest.ErrReader(io.ErrNoProgress)})
	require.ErrorIs(t, err, io.ErrNoProgress)
}
