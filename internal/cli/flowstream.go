package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

const flowAppendHelp = `Append nodes to a stream. The first append makes the stream. Its name is a scene (1 to 30 characters
without a slash) and a group (1 to 100). Nodes run one at a time, in the order of the appends.

A file has one node per line, as JSON:

  {"id": "inv-7", "type": "invoice", "args": {"order": 7}, "on_failure": "continue",
   "priority": 5, "options": {"timeout": "1m"}}

The id is the node's key: a node of that id is stored once. It defaults to a generated id. If one
line is invalid, nothing is appended. An append to a closed stream is refused (exit code 5), and its callback stays as it is.

` + streamCallbackHelp

const streamCallbackHelp = `--callback sets the receivers of the stream's callbacks, as JSON: error for each node that is PENDING,
success when the stream is closed. The setting persists. {} removes it:

  {"error": {"url": "https://example.org/alarm"}, "success": {"url": "https://example.org/closed"},
   "security": {"type": "aksk", "ak": "me", "sk": "..."}}`

// callbackFlags are the receivers of the callbacks of a stream.
type callbackFlags struct{ callback, ext string }

func (c *callbackFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.callback, "callback", "", "receivers of the stream's callbacks, as JSON; @FILE reads it from a file; defaults to no change")
	cmd.Flags().StringVar(&c.ext, "ext", "", "JSON value that these calls contain; @FILE reads it from a file")
}

// callbackOf is the callback that the flags say; nil = none was given.
func (f *flowsCommand) callbackOf(c *callbackFlags) (*graph.Spec, error) {
	if c.callback == "" {
		if c.ext != "" {
			return nil, usage("--ext works with --callback")
		}
		return nil, nil
	}
	text := []byte(`{"callback": `)
	for i, one := range []struct{ flag, given string }{{"callback", c.callback}, {"ext", c.ext}} {
		if one.given == "" {
			continue
		}
		given, err := f.jsonArgument(one.flag, one.given)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, `, "ext": `...)
		}
		text = append(text, given...)
	}
	doc, err := form.ReadJSON[form.Flow]("--callback", 1, append(text, '}'), "a stream")
	if err != nil {
		return nil, err
	}
	spec, err := doc.Form.Spec()
	if err == nil {
		_, err = flowspec.Callback(spec.Callback, spec.Ext)
	}
	return &spec, err
}

// perAppend is how many nodes of a file go into one append.
const perAppend = 1000

func (f *flowsCommand) append() *cobra.Command {
	var n nodeFlags
	var calls callbackFlags
	cmd := &cobra.Command{
		Use: "append SCENE GROUP", Short: "Append nodes to a stream", Long: flowAppendHelp, Args: wants("a scene and a group", cobra.ExactArgs(2)),
		Example: "  mscheduler flow append orders 4711 --type invoice --args '{\"order\": 4711}'\n  mscheduler flow append orders 4711 -f nodes.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (n.file == "") == (n.typ == "") {
				return usage("flow append requires either --type or --file; see: mscheduler flow append --help")
			}
			for _, one := range []string{"id", "args", "on-failure"} {
				if n.file != "" && cmd.Flags().Changed(one) {
					return usage("--%s works with a single node; in a file each line has its own", one)
				}
			}
			if err := flowspec.CheckStream(args[0], args[1]); err != nil {
				return err
			}
			nodes, err := f.nodesOf(&n, args[0], args[1])
			if err != nil {
				return err
			}
			about, err := f.callbackOf(&calls)
			if err != nil {
				return err
			}
			return f.appendAll(cmd.Context(), args[0], args[1], about, nodes)
		},
	}
	cmd.Flags().StringVar(&n.id, "id", "", "id and idempotency key of the node: at most one node per id; defaults to a generated one")
	cmd.Flags().StringVar(&n.typ, "type", "", "type of the node's task")
	cmd.Flags().StringVar(&n.args, "args", "", "arguments as JSON; @FILE reads them from a file")
	cmd.Flags().StringVar(&n.policy, "on-failure", "", "suspend (default), continue or end")
	_ = cmd.RegisterFlagCompletionFunc("on-failure", fixed("suspend", "continue", "end"))
	cmd.Flags().StringVarP(&n.file, "file", "f", "", "JSONL file with nodes; - for stdin")
	calls.add(cmd)
	return cmd
}

type nodeFlags struct{ id, typ, args, policy, file string }

// nodesOf are the nodes that the flags or the file say. All that is wrong is found before anything is
// written.
func (f *flowsCommand) nodesOf(n *nodeFlags, scene, group string) ([]graph.NodeSpec, error) {
	if n.file == "" {
		node := graph.NodeSpec{ID: n.id, Type: n.typ, OnFailure: graph.Policy(n.policy)}
		if n.args != "" {
			var err error
			if node.Args, err = f.jsonArgument("args", n.args); err != nil {
				return nil, err
			}
		}
		return []graph.NodeSpec{node}, f.checkNode(scene, group, node)
	}
	data, err := f.readFile(n.file)
	if err != nil {
		return nil, err
	}
	var nodes []graph.NodeSpec
	var errs []error
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		doc, err := form.ReadJSON[form.FlowNode](fileName(n.file), line, text, "a node")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		spec, err := (&form.Flow{Nodes: []form.FlowNode{*doc.Form}}).Spec()
		if err == nil {
			err = f.checkNode(scene, group, spec.Nodes[0])
		}
		errs = append(errs, doc.Locate(withoutNode(err)))
		nodes = append(nodes, spec.Nodes...)
	}
	if len(nodes) == 0 && len(errs) == 0 {
		errs = append(errs, usage("%s has no nodes", fileName(n.file)))
	}
	return nodes, errors.Join(errs...)
}

func (f *flowsCommand) checkNode(scene, group string, n graph.NodeSpec) error {
	nodes := []graph.NodeSpec{n}
	_, err := flowspec.Append(scene, group, nodes, func() string { return "generated" }, f.clock().Now())
	return withoutNode(errors.Join(err, builtin.CheckNodes(nodes)))
}

// withoutNode names fields of the only node as those of a line.
func withoutNode(err error) error {
	var bad *model.InvalidError
	if joined, many := err.(interface{ Unwrap() []error }); many {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, withoutNode(e))
		}
		return errors.Join(out...)
	}
	if errors.As(err, &bad) {
		return &model.InvalidError{Field: strings.TrimPrefix(bad.Field, "nodes[0]."), Reason: bad.Reason}
	}
	return err
}

func (f *flowsCommand) appendAll(ctx context.Context, scene, group string, about *graph.Spec, nodes []graph.NodeSpec) error {
	c, err := f.connect(ctx)
	if err != nil {
		return err
	}
	id, _ := flowspec.StreamID(scene, group)
	if about != nil { // before the append: whoever is called hears of each node
		if err := c.store.Flows.Appendable(ctx, id); err != nil {
			return err
		}
		if _, err := c.flows.SetCallback(ctx, scene, group, about.Callback, about.Ext); err != nil {
			return err
		}
	}
	ids := []string{}
	for some := range slices.Chunk(nodes, perAppend) {
		appended, err := c.flows.Append(ctx, scene, group, some...)
		if err != nil {
			if len(ids) > 0 {
				f.say("the first %d nodes were appended before this error, the last of them with the id %s:", len(ids), ids[len(ids)-1])
			}
			return f.partly(err, len(ids), view.Appended{Stream: id, Nodes: ids})
		}
		ids = append(ids, appended...)
	}
	if err := c.flows.Flush(ctx); err != nil {
		return f.partly(err, len(ids), view.Appended{Stream: id, Nodes: ids})
	}
	var types []string
	for i := range nodes {
		if typ := nodes[i].Type; !slices.Contains(types, typ) && len(types) < maxTypesChecked {
			types = append(types, typ)
		}
	}
	f.warnUnserved(ctx, c, types)
	text := fmt.Sprintf("%s  %s are in the stream\n", id, human.Plural(len(ids), "node", "nodes"))
	if len(ids) == 1 {
		text = fmt.Sprintf("%s  %s is in the stream\n", id, ids[0])
	}
	if err := f.result(view.Appended{Stream: id, Nodes: ids}, text); err != nil {
		return err
	}
	return f.sayIdle(ctx, c)
}

func (f *flowsCommand) open() *cobra.Command {
	var calls callbackFlags
	cmd := &cobra.Command{
		Use: "open SCENE GROUP", Short: "Open a stream that was closed", Args: wants("a scene and a group", cobra.ExactArgs(2)),
		Long: "Open a stream that the failure of a node, or a cancel, has closed. The nodes that wait continue, and\nappends are accepted again. An open stream stays open.\n\n" + streamCallbackHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, err := f.callbackOf(&calls)
			if err != nil {
				return err
			}
			c, err := f.connectReady(cmd.Context())
			if err != nil {
				return err
			}
			id, _ := flowspec.StreamID(args[0], args[1])
			if about != nil {
				if _, err := c.flows.Get(cmd.Context(), id); err != nil { // opening does not make a stream
					return noStream(id, err)
				}
				if _, err := c.flows.SetCallback(cmd.Context(), args[0], args[1], about.Callback, about.Ext); err != nil {
					return err
				}
			}
			doc, err := c.flows.Open(cmd.Context(), args[0], args[1])
			if err != nil {
				return noStream(id, err)
			}
			return f.printFlow(cmd.Context(), c, doc)
		},
	}
	calls.add(cmd)
	return cmd
}

// noStream is the error of a stream, which the engine of flows would call a flow.
func noStream(id string, err error) error {
	if errors.Is(err, store.ErrNoFlow) {
		return coded(ExitNotFound, "no such stream: %s", id)
	}
	return err
}

const flowLinesHelp = `List streams that have something to do, or that are closed, by their names.

INIT is the number of nodes not linked yet. WAIT is the number of linked nodes that wait for their
predecessor. NODE is the node that may run, or waits for a person, and SINCE says since when. FIRST
and LAST are the first and the last node of the chain. 5M and 1H are the numbers of nodes that ended
within the last five minutes and within the last hour.`

func (f *flowsCommand) lines() *cobra.Command {
	var limit int
	var all bool
	cmd := &cobra.Command{
		Use: "lines", Short: "List streams with their backlogs and speeds", Args: noArgs, Long: flowLinesHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return f.onDatabase(func(ctx context.Context, c *connection, _ []string) error { return f.printLines(ctx, c, all, limit) })(cmd, nil)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "number of streams, at most 1000")
	cmd.Flags().BoolVar(&all, "all", false, "also list idle streams")
	return cmd
}

func (f *flowsCommand) printLines(ctx context.Context, c *connection, all bool, limit int) error {
	views, unread := []view.Stream{}, store.Unread{}
	t := newTable("STREAM", "STATUS", "INIT", "WAIT", "NODE", "SINCE", "FIRST", "LAST", "5M", "1H", "WHY")
	for after, more := "", true; more && len(views) < limit; {
		docs, broken, err := c.store.Flows.Streams(ctx, after, limit)
		if err != nil {
			return err
		}
		for _, b := range broken {
			after = max(after, b.ID)
		}
		unread.Note("stream", broken)
		ids := make([]string, len(docs))
		for i, doc := range docs {
			ids[i] = doc.ID
		}
		init, _, err := c.store.Nodes.CountWaiting(ctx, ids, 0)
		if err != nil {
			return err
		}
		speeds, err := c.store.StreamSpeeds(ctx, docs, c.at)
		if err != nil {
			return err
		}
		for _, doc := range docs {
			after = max(after, doc.ID)
			v := view.StreamOf(doc, init[doc.ID])
			if !all && v.Idle() || len(views) == limit {
				continue
			}
			v.SetSpeed(speeds[doc.ID])
			views = append(views, v)
			status, node := string(v.Status), v.Node
			if v.Closed {
				status += ", closed"
			}
			if v.Is == graph.NodePending {
				node += " PENDING"
			}
			since := ""
			if !v.At.IsZero() {
				since = human.Relative(v.At, c.at)
			}
			t.add(v.Stream, status, fmt.Sprint(v.Init), fmt.Sprint(v.Wait), node, since, v.First, v.Last, fmt.Sprint(*v.Ended5), fmt.Sprint(*v.Ended1), human.OneLine(v.Reason, 80))
		}
		more = len(docs)+len(broken) == limit
	}
	return allBut(unread, f.resultTable(map[string]any{"streams": views}, t, "no streams with a backlog; --all lists idle ones"))
}
