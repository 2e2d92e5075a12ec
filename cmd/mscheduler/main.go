// Command mscheduler is the binary: a worker, a development server, and the tools of an
// operator. The commands are in internal/cli; here is only what belongs to the process:
// its arguments, environment, streams and signals.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kelseyhightower/envconfig"
	"golang.org/x/term"

	_ "golang.org/x/crypto/x509roots/fallback" // a container from scratch has no certificates

	"github.com/mscheduler/mscheduler/internal/cli"
)

func main() {
	// Without this, the process would end at a write to a pipe that nobody reads any more. With it, the write returns
	// an error, and the command decides: a worker goes on. Programs that this process starts get the default back,
	// which they would not if the signal were ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	p := cli.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdinTerminal: isTerminal(os.Stdin), StdoutTerminal: isTerminal(os.Stdout), StderrTerminal: isTerminal(os.Stderr),
		Environ: os.Environ(), Hangups: hangups,
	}
	if err := envconfig.Process("MSCHEDULER", &p.Env); err != nil {
		fmt.Fprintln(os.Stderr, "mscheduler:", err)
		os.Exit(cli.ExitUsage)
	}
	p.Executable, _ = os.Executable() // only the demo needs it, and says so when it is missing
	ctx, stop := interruptible()
	code := cli.Run(ctx, p)
	stop()
	os.Exit(code)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// interruptible returns a context that the first signal ends, which is the wish to
// stop. The second ends the process on the spot: whoever asks twice means it.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		awaitSecond(signals, cancel)
		os.Exit(cli.ExitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// hangups are the signals by which a process is asked to read its configuration again. Without anybody who
// waits for them, they end the process.
func hangups() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// sameWish is for how long after the first signal others are the same wish: timeout(1) sends
// one to the process and one to its group.
const sameWish = 500 * time.Millisecond

// awaitSecond calls stop at the first signal and returns at the second.
func awaitSecond(signals <-chan os.Signal, stop func()) {
	<-signals
	stop()
	for same := time.After(sameWish); ; {
		select {
		case <-signals:
		case <-same:
			<-signals
			return
		}
	}
}
