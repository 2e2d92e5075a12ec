package cli

import "github.com/spf13/cobra"

// mostOnPage is how many things a page of a list has at most.
const mostOnPage = 1000

// pageFlags are those of a command that prints a list by pages.
type pageFlags struct {
	limit int
	after string // what the page before printed
}

// register adds the flags, and checks the limit before the command runs; things are what the list is of.
func (p *pageFlags) register(cmd *cobra.Command, things string) {
	cmd.Flags().IntVar(&p.limit, "limit", 50, "number of "+things+" on a page, at most 1000")
	cmd.Flags().StringVar(&p.after, "after", "", "list "+things+" after this place, for the next page")
	_ = cmd.RegisterFlagCompletionFunc("after", cobra.NoFileCompletions)
	cmd.PreRunE = func(*cobra.Command, []string) error { return checkLimit(p.limit) }
}

func checkLimit(limit int) error {
	if limit < 1 || limit > mostOnPage {
		return usage("--limit is %d; want 1 to %d", limit, mostOnPage)
	}
	return nil
}

// printPage prints a page: the table, or with -o json the views in a field that is called as the things are. next is
// the value of --after for the next page; "" = there is none.
func (a *app) printPage(things string, views any, next string, t *table, none string) error {
	out := map[string]any{things: views}
	if next != "" {
		out["next"] = next
	}
	if err := a.resultTable(out, t, none); err != nil || next == "" || a.asJSON() {
		return err
	}
	a.say("more %s follow; for the next page: --after '%s'", things, next)
	return nil
}
