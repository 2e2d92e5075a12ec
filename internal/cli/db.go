package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/store"
)

func (a *app) dbCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "db", Short: "Check, migrate, shard and restore the database", Args: noArgs, RunE: group}
	cmd.AddCommand(a.dbStatus(), a.dbMigrate(), a.dbShard(), a.dbRestored())
	return cmd
}

func (a *app) dbStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Compare the schema of the database with this release", Args: noArgs,
		Long: "Compare the schema of the database with this release. The exit code is 0 if the release\nsupports it, otherwise 5. An empty database has no schema: the first send or worker creates it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			st, err := c.store.Schema(cmd.Context())
			if err != nil {
				return err
			}
			return a.printSchema(c, st)
		},
	}
}

func (a *app) dbMigrate() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Migrate the schema to this release", Args: noArgs,
		Long: "Migrate the schema to this release: create missing collections and indexes, then write the\nversion. The command is safe to repeat, to run concurrently, and to run next to live workers.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			before, err := c.store.Schema(cmd.Context())
			if err != nil {
				return err
			}
			st, err := c.store.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			made := slices.DeleteFunc(before.Missing, func(name string) bool { return slices.Contains(st.Missing, name) })
			switch {
			case before.Version != st.Version:
				a.say("migrated from version %d to %d", before.Version, st.Version)
			case len(made) > 0:
				a.say("made %s", strings.Join(made, ", "))
			case len(st.Missing) > 0: // the schema is that of a newer release
				a.say("made nothing")
			default:
				a.say("nothing to do")
			}
			return a.printSchema(c, st)
		},
	}
}

type schemaView struct {
	Database  string   `json:"database"`
	Version   int      `json:"version"`
	Wanted    int      `json:"wanted"`
	MinReader int      `json:"min_reader"`
	Missing   []string `json:"missing_indexes"`
	Ready     bool     `json:"ready"`
	State     string   `json:"state"`
}

func (a *app) printSchema(c *connection, st store.SchemaStatus) error {
	state, ready := st.State()
	var f fields
	f.add("database", c.String())
	f.add("prefix", c.prefix)
	f.add("schema", fmt.Sprintf("version %d; this release has version %d", st.Version, st.Wanted))
	if st.Version > 0 {
		f.add("missing", strings.Join(st.Missing, ", "))
	}
	f.add("state", state)
	err := a.result(schemaView{c.database, st.Version, st.Wanted, st.MinReader, append([]string{}, st.Missing...), ready, state}, f.String())
	if err == nil && !ready {
		return quiet(ExitRefused)
	}
	return err
}
