package form

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

const aFlow = `key: order-1
tenant: shop
creator: me
category: orders
description: an order
args:
  order:
    id: o1
nodes:
  - id: pay
    type: pay
    args:
      id:
        $arg: order.id
    on_failure: end
    priority: 0
    options:
      timeout: 1m
      retry:
        max_errors: 3
  - id: stock
    type: stock
    after:
      - pay
    when:
      pay:
        output.amount:
          $gt: 100
  - id: ship
    type: ship
    after:
      - pay
      - stock
    args:
      receipt:
        $output: pay.no
    join:
      strategy: these
      nodes:
        - pay
  - id: calm
    after:
      - ship
    wait:
      for: 10m
  - id: noon
    after:
      - ship
    wait:
      until:
        $output: pay.due
  - id: approve
    after:
      - ship
    ask:
      title: Is it well?
      fields:
        - name: how
          kind: choice
          required: true
          choices:
            - yes it is
            - so so
          help: as you see it
  - id: inner
    after:
      - ship
    args:
      $output: pay
    flow:
      description: within
      nodes:
        - id: x
          type: t
          options:
            timeout: 1m
  - id: pack
    type: pack
    after:
      - ship
    args:
      $item: id
    each:
      items:
        $output: pay.parcels
      limit: 2
  - id: end
    type: done
    after:
      - ship
      - calm
      - noon
      - approve
      - inner
      - pack
    join:
      strategy: custom
      custom: judge
      context:
        seen: 0
ext:
  x: 1
`

func TestAFlowIsReadAndWritten(t *testing.T) {
	docs, err := Read[Flow]("f.yaml", []byte(aFlow), "a flow", "flows")
	require.NoError(t, err)
	require.Len(t, docs, 1)
	s, err := docs[0].Form.Spec()
	require.NoError(t, err)
	raw := func(s string) any { return json.RawMessage(s) }
	zero, three := 0, 3
	require.Equal(t, graph.Spec{
		Key: "order-1", Tenant: "shop", Creator: "me", Category: "orders", Description: "an order",
		Args: raw(`{"order":{"id":"o1"}}`), Ext: raw(`{"x":1}`),
		Nodes: []graph.NodeSpec{
			{
				ID: "pay", Type: "pay", Args: raw(`{"id":{"$arg":"order.id"}}`), OnFailure: graph.End, Priority: &zero,
				Options: model.Options{ExecutionTimeout: time.Minute, Retry: &model.Retry{MaxErrors: &three}},
			},
			{ID: "stock", Type: "stock", After: []string{"pay"}, When: map[string]any{"pay": raw(`{"output.amount":{"$gt":100}}`)}},
			{ID: "ship", Type: "ship", After: []string{"pay", "stock"}, Args: raw(`{"receipt":{"$output":"pay.no"}}`), Join: graph.Join{Strategy: graph.These, Nodes: []string{"pay"}}},
			{ID: "calm", After: []string{"ship"}, Wait: &graph.Wait{For: 10 * time.Minute}},
			{ID: "noon", After: []string{"ship"}, Wait: &graph.Wait{Until: raw(`{"$output":"pay.due"}`)}},
			{ID: "approve", After: []string{"ship"}, Ask: &graph.Ask{Title: "Is it well?", Fields: []graph.Field{
				{Name: "how", Kind: "choice", Required: true, Choices: []string{"yes it is", "so so"}, Help: "as you see it"},
			}}},
			{ID: "inner", After: []string{"ship"}, Args: raw(`{"$output":"pay"}`), Flow: &graph.Spec{
				Description: "within", Nodes: []graph.NodeSpec{{ID: "x", Type: "t", Options: model.Options{ExecutionTimeout: time.Minute}}},
			}},
			{ID: "pack", Type: "pack", After: []string{"ship"}, Args: raw(`{"$item":"id"}`), Each: &graph.Each{Items: raw(`{"$output":"pay.parcels"}`), Limit: 2}},
			{ID: "end", Type: "done", After: []string{"ship", "calm", "noon", "approve", "inner", "pack"}, Join: graph.Join{Strategy: graph.Custom, Custom: "judge", Context: raw(`{"seen":0}`)}},
		},
	}, s)
	written, err := YAML(FlowOf(&s))
	require.NoError(t, err)
	require.Equal(t, aFlow, written)

	data, err := json.Marshal(FlowOf(&s))
	require.NoError(t, err)
	doc, err := ReadJSON[Flow]("f.json", 1, data, "a flow")
	require.NoError(t, err)
	again, err := doc.Form.Spec()
	require.NoError(t, err)
	require.Equal(t, s, again, "one form for files and for JSON")
}

func TestAStrategyAloneIsAJoin(t *testing.T) {
	docs, err := Read[Flow]("f.yaml", []byte("nodes: [{id: a, join: all_ended}]\n"), "a flow", "flows")
	require.NoError(t, err)
	s, err := docs[0].Form.Spec()
	require.NoError(t, err)
	require.Equal(t, []graph.NodeSpec{{ID: "a", Join: graph.Join{Strategy: graph.AllEnded}}}, s.Nodes)
}

func TestACallbackOfAFlowMayHaveItsKeyInShort(t *testing.T) {
	docs, err := Read[Flow]("f.yaml", []byte("callback: {error: {url: http://x/}, security: {type: aksk, ak: me, sk: sesame}}\nnodes: [{id: a, type: t}]\n"), "a flow", "flows")
	require.NoError(t, err)
	s, err := docs[0].Form.Spec()
	require.NoError(t, err)
	require.Equal(t, &model.Callback{
		Error:    &model.CallbackTarget{URL: "http://x/"},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "me", Secret: "sesame"}}},
	}, s.Callback)
	written, err := YAML(FlowOf(&s))
	require.NoError(t, err)
	require.NotContains(t, written, "sesame")
	require.Contains(t, written, "ak: me")
}

func TestADurationAloneIsAWaitAndATitleAloneAsks(t *testing.T) {
	docs, err := Read[Flow]("f.yaml", []byte("nodes: [{id: a, wait: 10m}, {id: b, ask: Is it well?}]\n"), "a flow", "flows")
	require.NoError(t, err)
	s, err := docs[0].Form.Spec()
	require.NoError(t, err)
	require.Equal(t, []graph.NodeSpec{{ID: "a", Wait: &graph.Wait{For: 10 * time.Minute}}, {ID: "b", Ask: &graph.Ask{Title: "Is it well?"}}}, s.Nodes)
}

func TestMistakesOfAFlowHaveTheirPlaces(t *testing.T) {
	for content, want := range map[string][]string{
		"key: k\nname: x\nnodes:\n  - id: a\n    parents: [b]\n    join: {least: 2}\n  - id: b\n    timeout: 1m\n": {
			"f.yaml:2:1: name is not known in a flow; want key, tenant, creator, category, description, args, nodes, ext, callback",
			"f.yaml:5:5: nodes[0].parents is not known; use after",
			"f.yaml:6:12: nodes[0].join.least is not known here; want strategy, n, nodes, custom, context",
			"f.yaml:8:5: nodes[1].timeout is not known; use options: {timeout: ...}",
		},
		"nodes:\n  - id: a\n    after: b\n    when: [b]\n    options: {timeout: soon}\n": {
			`f.yaml:3:12: nodes[0].after is "b"; want a list`,
			"f.yaml:4:11: nodes[0].when has a list; want names with their texts, such as {name: text}",
			`f.yaml:5:24: nodes[0].options.timeout is "soon"; want a duration such as 500ms, 30s, 5m, 2h or 7d`,
		},
		"nodes: {a: {type: t}}\n": {"f.yaml:1:9: nodes has fields; want a list"},
	} {
		_, err := Read[Flow]("f.yaml", []byte(content), "a flow", "flows")
		require.ErrorIs(t, err, model.ErrInvalid)
		require.Equal(t, want, said(err), content)
	}
}

func TestWhatIsWrongWithANodeIsLocated(t *testing.T) {
	docs, err := Read[Flow]("f.yaml", []byte("nodes:\n  - id: a\n    type: t\n    options:\n      expires_at: soon\n"), "a flow", "flows")
	require.NoError(t, err)
	_, err = docs[0].Form.Spec()
	require.ErrorContains(t, docs[0].Locate(err), `f.yaml:5:19: nodes[0].options.expires_at is "soon"; want a time such as`)
}

func TestAFlowIsWrittenWithoutItsSecrets(t *testing.T) {
	s := graph.Spec{Nodes: []graph.NodeSpec{{ID: "a", Options: model.Options{Callback: &model.Callback{
		Success:  &model.CallbackTarget{URL: "https://example.org/"},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "ak", Secret: "sesame"}}},
	}}}}}
	written, err := YAML(FlowOf(&s))
	require.NoError(t, err)
	require.NotContains(t, written, "sesame")
	require.Contains(t, written, "ak: ak")
}
