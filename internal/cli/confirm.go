package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// confirm asks before something happens to many. Without a person to ask it is
// refused, unless --yes was given.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.StdinTerminal {
		return usage("%s This is not a terminal: pass --yes to confirm", question)
	}
	_, _ = fmt.Fprintf(a.Stderr, "%s [y/N] ", linesOnTerminal(question))
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if s := strings.ToLower(strings.TrimSpace(answer)); s == "y" || s == "yes" {
		return nil
	}
	if err != nil {
		a.say("")
	}
	if errors.Is(err, context.Canceled) {
		return coded(ExitInterrupted, "interrupted; nothing was changed")
	}
	return coded(ExitFailed, "nothing was changed")
}
