package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/embedded"
)

func (a *app) embeddedCompact() *cobra.Command {
	return &cobra.Command{
		Use: "compact FILE", Short: "Reclaim the space of deleted documents in a file", Args: one("the file of an embedded server"),
		Long: "Reclaim the space of deleted documents in an embedded server's file. The server must not be\nrunning. The old file stays until the new one is complete.",
		RunE: func(_ *cobra.Command, args []string) error {
			before, after, err := embedded.Compact(args[0])
			if err != nil {
				return embeddedError(err)
			}
			return a.result(map[string]int64{"bytes_before": before, "bytes_after": after}, fmt.Sprintf("%d bytes, before %d\n", after, before))
		},
	}
}

func (a *app) embeddedValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "Check that a file's documents and indexes are consistent", Args: one("the file of an embedded server"),
		Long: "Check the documents of an embedded server's file, and that its indexes match them. The server\nmust not be running. The exit code is 1 if the file is damaged.",
		RunE: func(cmd *cobra.Command, args []string) error {
			documents, problems, err := embedded.Validate(cmd.Context(), args[0])
			if err != nil {
				return embeddedError(err)
			}
			err = a.result(map[string]any{"documents": documents, "problems": append([]string{}, problems...)}, fmt.Sprintf("%d documents\n", documents))
			if err == nil && len(problems) > 0 {
				err = coded(ExitFailed, "%s is damaged:\n%s", args[0], strings.Join(problems, "\n"))
			}
			return err
		},
	}
}
