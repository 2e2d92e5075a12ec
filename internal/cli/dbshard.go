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

MongoDB spreads an empty collection over all shards at once. The documents of any other stay on
one shard until the balancer moves them. It does so in the background, and since MongoDB 6.0
only while two shards differ by at least 384 MB.

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
	Shards     int    `json:"shards,omitempty"` // that have a part of it
}

func (a *app) shard(ctx context.Context, c *connection, yes, dryRun bool) error {
	before, shards, err := c.sharding(ctx)
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
		return a.printSharding(before, shards)
	case len(todo) == 0:
		a.say("nothing to do")
		return a.printSharding(before, shards)
	}
	if err := a.confirm(yes, fmt.Sprintf("Shard %s of %s?", human.Plural(len(todo), "collection", "collections"), c)); err != nil {
		return err
	}
	for _, collection := range todo {
		if err := c.store.Shard(ctx, collection); err != nil {
			return err
		}
	}
	after, shards, err := c.sharding(ctx)
	if err != nil {
		return err
	}
	return a.printSharding(after, shards)
}

// sharding is [store.Store.Sharding]. It refuses a deployment that is not sharded.
func (c *connection) sharding(ctx context.Context) (all []store.Sharding, shards int, err error) {
	top, err := c.store.Topology(ctx)
	if err != nil {
		return nil, 0, err
	}
	if !top.Sharded {
		return nil, 0, coded(ExitRefused, "%s is not a sharded cluster; db shard needs the connection string of a mongos", c)
	}
	return c.store.Sharding(ctx)
}

func (a *app) printSharding(all []store.Sharding, shards int) error {
	views := make([]shardView, len(all))
	var f fields
	for i, s := range all {
		views[i] = shardView(s)
		state := "not sharded"
		if s.Key != "" {
			state = fmt.Sprintf("sharded by %s, on %d of %s", s.Key, s.Shards, human.Plural(shards, "shard", "shards"))
		}
		f.add(s.Collection, state)
	}
	return a.result(map[string]any{"collections": views}, f.String())
}
