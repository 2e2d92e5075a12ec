package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const healthHelp = `Check the health of a serve or work process. URL is its /livez or /readyz. The exit code is 0 if it
answers 200. Use it as a container health check:

  mscheduler health http://127.0.0.1:9090/readyz

It does not read the configuration file: a mistake there does not restart a healthy process.`

// healthTimeout is how long the process may take to answer.
const healthTimeout = 5 * time.Second

func (a *app) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use: "health URL", Short: "Check the health of a process", Long: healthHelp, Args: one("the URL of /livez or /readyz"),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { // instead of [app.configure], which reads the file
			a.origins = map[string]string{}
			return errors.Join(a.settle(cmd.Flags().Lookup("output"), nil), a.checkOutput(cmd))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := url.Parse(args[0])
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return usage("URL is %q; want one such as http://127.0.0.1:9090/readyz", args[0])
			}
			r, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, args[0], nil)
			if err != nil {
				return usage("URL is %q: %v", args[0], err)
			}
			client := http.Client{Timeout: healthTimeout, Transport: &http.Transport{}} // no proxy stands between
			res, err := client.Do(r)
			if err != nil {
				return fmt.Errorf("asking the process: %w", err)
			}
			defer func() { _ = res.Body.Close() }()
			text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
			if err != nil {
				return fmt.Errorf("asking the process: %w", err)
			}
			answer := strings.TrimSpace(string(text))
			if res.StatusCode != http.StatusOK {
				return coded(ExitFailed, "%s: %s", res.Status, answer)
			}
			return a.result(map[string]string{"answer": answer}, answer+"\n")
		},
	}
}
