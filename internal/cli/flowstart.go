package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
)

const flowFileHelp = `A file has one or more flows, as YAML documents or JSON; - is stdin:

  key: order-7                      # defaults to a generated key
  args: {order: {id: 7}}
  nodes:
    - id: pay
      type: payment
      args: {order: {$arg: order.id}}     # from the flow's arguments
      on_failure: end                     # suspend (default), continue or end
    - id: stock
      type: stock
      after: [pay]
      when: {pay: {output.amount: {$gt: 100}}}
      options: {timeout: 1m, retry: {max_errors: 3}}
    - id: done
      type: mail
      after: [pay, stock]
      join: all_ended                     # all_succeeded (default), all_ended, at_least, these, custom
      args: {receipt: {$output: pay.receipt.no}}

A node with wait has no task. It succeeds at a time: wait: 10m, wait: {until: 2026-12-24T18:00:00Z}
or wait: {until: {$output: pay.due}}. A node with ask has no task, either. It is PENDING until a person
resolves it; the values of the fields are its output:

    - id: approve
      after: [pay]
      ask:
        title: Is the amount correct?
        fields:
          - {name: amount, kind: number, required: true}    # string (default), number, bool, choice
          - {name: send_by, kind: choice, choices: [post, courier], help: how to send the receipt}

A node with flow starts a flow and waits for its end: flow: {nodes: [...]}. A node with each has a
task for each element of a list, and outputs their outputs as a list:

    - id: pack
      type: pack
      after: [pay]
      each: {items: {$output: pay.parcels}, limit: 5}
      args: {parcel: {$item: id}}

A flow also has tenant, creator, category, description, ext and callback, whose error is called when
a person must resolve a node, and whose success when the flow is FINISH. A node also has priority.
Options are those of a task. A join with fields: {strategy: at_least, n: 2}, {strategy: these,
nodes: [pay]} or {strategy: custom, custom: NAME, context: ...}.`

func (f *flowsCommand) validate() *cobra.Command {
	var file, picture string
	cmd := &cobra.Command{
		Use: "validate -f FILE", Short: "Check a file of flows, or draw them", Args: noArgs,
		Long:        "Check a file of flows and print all mistakes with file, line and column: unknown fields first, and when\nthere are none, the others. It needs no database. With --uri or MSCHEDULER_MONGODB_URI it also warns of types that the database does not know.\nWith -o dot, mermaid or svg, or --graph, it prints the graphs of the flows.\n\n" + flowFileHelp,
		Annotations: map[string]string{moreOutputs: drawn},
		Example:     "  mscheduler flow validate -f order.yaml -o svg > order.svg",
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := f.drawing(cmd, picture)
			if err != nil {
				return err
			}
			specs, err := f.readFlows(file, nil)
			if err != nil {
				return err
			}
			if format != "" {
				return f.draw(specs, format)
			}
			views := make([]view.ValidFlow, len(specs))
			text := ""
			for i := range specs {
				v := view.ValidFlowOf(&specs[i])
				name := "a flow without a key"
				if v.Key != "" {
					name = human.FlowID(input.RuleName(v.Tenant, v.Key))
				}
				views[i], text = v, text+fmt.Sprintf("%s  valid, %s\n", name, human.Plural(v.Nodes, "node", "nodes"))
			}
			if err := f.result(map[string]any{"flows": views}, text); err != nil || f.flags.uri == "" {
				return err
			}
			f.warnUnknown(cmd.Context(), specs)
			return nil
		},
	}
	fileFlag(cmd, &file)
	addDrawing(cmd, &picture)
	return cmd
}

// draw prints the graphs of definitions.
func (f *flowsCommand) draw(specs []graph.Spec, format string) error {
	for i := range specs {
		text, err := view.DrawSpec(format, &specs[i], clock.System().Now())
		if err != nil {
			return err
		}
		if err := f.print(text); err != nil {
			return err
		}
	}
	return nil
}

// warnUnknown warns of types that have no definition and no live worker. It writes nothing.
func (f *flowsCommand) warnUnknown(ctx context.Context, specs []graph.Spec) {
	c, err := f.connectReady(ctx)
	if err != nil {
		f.say("could not check the types: %v", err)
		return
	}
	for _, typ := range typesOf(specs) {
		if known, err := c.knows(ctx, typ); err != nil {
			f.say("could not check the type %q: %v", typ, err)
		} else if !known {
			f.say("%s", unserved(typ))
		}
	}
}

// typesOf are the first types of tasks in flows, and in the flows that their nodes start.
func typesOf(specs []graph.Spec) (types []string) {
	for i := range specs {
		for k := range specs[i].Nodes {
			n := &specs[i].Nodes[k]
			some := []string{n.Type}
			if n.Flow != nil {
				some = typesOf([]graph.Spec{*n.Flow})
			}
			for _, typ := range some {
				if typ != "" && !slices.Contains(types, typ) && len(types) < maxTypesChecked {
					types = append(types, typ)
				}
			}
		}
	}
	return types
}

// readFlows reads the flows of a file, changes them, and finds everything that is wrong with any of
// them.
func (f *flowsCommand) readFlows(file string, change func(*graph.Spec)) ([]graph.Spec, error) {
	docs, err := readDocs[form.Flow](f.app, file, "a flow", "flows")
	if err != nil {
		return nil, err
	}
	specs := make([]graph.Spec, len(docs))
	var errs []error
	for i, d := range docs {
		spec, err := d.Form.Spec()
		if change != nil {
			change(&spec)
		}
		specs[i] = spec
		errs = append(errs, d.Locate(errors.Join(err, flow.Validate(spec), builtin.CheckNodes(spec.Nodes))))
	}
	return specs, errors.Join(errs...)
}

func (f *flowsCommand) start() *cobra.Command {
	var file, key, args string
	cmd := &cobra.Command{
		Use: "start -f FILE", Short: "Start flows from a file", Args: noArgs,
		Long:    "Start the flows of a file. If one flow of the file is invalid, none starts. A key names one flow:\nif a flow of that key exists, nothing changes.\n\n" + flowFileHelp,
		Example: "  mscheduler flow start -f order.yaml --key order-7 --args '{\"order\": {\"id\": 7}}'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var given json.RawMessage
			if cmd.Flags().Changed("args") {
				var err error
				if given, err = f.jsonArgument("args", args); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("key") {
				if err := input.Key(key); err != nil {
					return err
				}
			}
			specs, err := f.readFlows(file, func(s *graph.Spec) {
				if key != "" {
					s.Key = key
				}
				if given != nil {
					s.Args = given
				}
			})
			if err != nil {
				return err
			}
			if key != "" && len(specs) > 1 {
				return usage("--key works with a single flow; %s has %d", fileName(file), len(specs))
			}
			return f.startAll(cmd.Context(), specs)
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().StringVar(&key, "key", "", "idempotency key of the flow: at most one flow per key; defaults to the file's, else generated")
	cmd.Flags().StringVar(&args, "args", "", "arguments of the flow as JSON, in place of the file's; @FILE reads them from a file")
	return cmd
}

func (f *flowsCommand) startAll(ctx context.Context, specs []graph.Spec) error {
	c, err := f.connect(ctx)
	if err != nil {
		return err
	}
	flows := f.several("flows")
	var started []graph.Spec
	for i := range specs {
		doc, err := c.flows.Start(ctx, specs[i])
		if err != nil {
			return flows.cut(err)
		}
		if doc.Created {
			f.made(audit.Thing{Kind: audit.Flow, ID: doc.ID})
			started = append(started, specs[i])
		} else {
			f.say("the key of %s already exists; nothing changed", human.FlowID(doc.ID))
		}
		if err := flows.add(view.FlowOf(doc), flowLine(doc)); err != nil {
			return err
		}
	}
	f.warnUnserved(ctx, c, typesOf(started))
	if err := flows.end(ctx); err != nil {
		return err
	}
	return f.sayIdle(ctx, c)
}
