package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
)

const dbShardHelp = `Distribute the tasks and their history over the shards of a cluster.

Connect to mongos. The command shards the collections tasks and task_history by the key
{_id: "hashed"}. The other collections are small and stay on the database's primary shard.
It prints its plan and asks for confirmation. You can repeat it, and workers may keep running.
MongoDB moves existing documents in the background.

The user needs the role clusterManager, or the action enableSharding on the database
and find on the database config.
Sharding cannot be undone before MongoDB 8.0.`

func (a *app) dbShard() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use: "shard", Short: "Distribute the tasks over the shards of a cluster", Long: dbShardHelp, Args: noArgs,
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error { return a.shard(ctx, c, yes, dryRun) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan and change nothing")
	return cmd
}

type shardView struct {
	Collection string `json:"collection"`
	Key        string `json:"key,omitempty"` // its shard key; absent = not sharded
	Ready      bool   `json:"ready"`
}

func (a *app) shard(ctx context.Context, c *connection, yes, dryRun bool) error {
	before, err := c.sharding(ctx)
	if err != nil {
		return err
	}
	var todo []string
	for _, s := range before {
		switch {
		case s.Ready:
			a.say("%s is already sharded", s.Collection)
		case s.Key != "":
			return coded(ExitRefused, "%s is sharded by %s, not by {_id: \"hashed\"}; MongoDB's reshardCollection changes a shard key (5.0 and later)", s.Collection, s.Key)
		default:
			todo = append(todo, s.Collection)
			a.say("to do: shard %s.%s by {_id: \"hashed\"}", c.database, s.Collection)
		}
	}
	switch {
	case dryRun:
		a.say("nothing was changed")
		return a.printSharding(before)
	case len(todo) == 0:
		a.say("nothing to do")
		return a.printSharding(before)
	}
	if err := a.confirm(yes, fmt.Sprintf("Shard %s of %s?", human.Plural(len(todo), "collection", "collections"), c)); err != nil {
		return err
	}
	for _, collection := range todo {
		if err := c.store.Shard(ctx, collection); err != nil {
			return err
		}
	}
	after, err := c.sharding(ctx)
	if err != nil {
		return err
	}
	return a.printSharding(after)
}

// sharding reads how the collections are distributed. It refuses a deployment that is not sharded.
func (c *connection) sharding(ctx context.Context) ([]store.Sharding, error) {
	top, err := c.store.Topology(ctx)
	if err != nil {
		return nil, err
	}
	if !top.Sharded {
		return nil, coded(ExitRefused, "%s is not a sharded cluster; db shard needs the connection string of a mongos", c)
	}
	return c.store.Sharding(ctx)
}

func (a *app) printSharding(all []store.Sharding) error {
	views := make([]shardView, len(all))
	var f fields
	for i, s := range all {
		views[i] = shardView(s)
		state := "not sharded"
		if s.Key != "" {
			state = "sharded by " + s.Key
		}
		f.add(s.Collection, state)
	}
	return a.result(map[string]any{"collections": views}, f.String())
}
