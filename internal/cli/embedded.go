package cli

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/embedded"
)

const embeddedHelp = `Run the embedded server alone, so that any MongoDB client can connect to it.

It speaks MongoDB's protocol and looks like a replica set of one. It is for development,
tests and one small machine: there is no authentication, and it refuses what it does not
support. Without --path nothing outlives it.

The address is printed to stdout once the server listens.`

func (a *app) embeddedCommand() *cobra.Command {
	var addr, path string
	var remote bool
	cmd := &cobra.Command{
		Use: "embedded", Short: "Run the embedded MongoDB-compatible server alone", Long: embeddedHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := a.startEmbedded(embedded.Options{Addr: addr, Path: path, AllowRemote: remote})
			if err != nil {
				return err
			}
			if err = a.result(map[string]string{"uri": server.URI()}, server.URI()+"\n"); err == nil {
				a.say("the embedded server is listening, for development, tests and a single small machine. Ctrl-C stops it")
				<-cmd.Context().Done()
			}
			return closing(server, err)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:27027", "address to listen on; port 0 is any free port; a path that contains a slash and ends in .sock is a Unix socket")
	cmd.Flags().StringVar(&path, "path", "", "database file; defaults to none: in memory")
	cmd.Flags().BoolVar(&remote, "allow-remote", false, "allow an address that other machines can reach, for containers and private networks")
	cmd.AddCommand(a.embeddedCompact(), a.embeddedValidate())
	return cmd
}

func (a *app) startEmbedded(opt embedded.Options) (*embedded.Server, error) {
	log := a.logger()
	opt.Logger = &log
	server, err := embedded.Start(opt)
	if err != nil {
		return nil, embeddedError(err)
	}
	return server, nil
}

// embeddedError gives the error its exit code: an address that is none, and a file or folder
// that is not there, are wrong input.
func embeddedError(err error) error {
	var addr *embedded.AddrError
	if errors.As(err, &addr) || errors.Is(err, fs.ErrNotExist) {
		return &codedError{ExitUsage, err}
	}
	return &codedError{ExitFailed, err}
}

// closing closes the server and keeps the first error.
func closing(server *embedded.Server, err error) error {
	if cerr := server.Close(); err == nil {
		return cerr
	}
	return err
}
