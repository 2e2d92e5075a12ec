package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// mayNot is the code of a server's error that is not tried again.
const mayNot = 13

// behind is a session whose server refuses what the rules name.
func behind(t *testing.T) (*session, *proxy.Proxy) {
	t.Helper()
	s, p := newSession(t), testdb.Behind(t)
	s.uri = p.URI()
	s.ok("db", "migrate")
	return s, p
}

// failsMidway runs a command while the server refuses what the rule names. It must fail, and print as JSON what it
// did before.
func (s *session) failsMidway(p *proxy.Proxy, rule proxy.Rule, into any, args ...string) result {
	s.t.Helper()
	rule.Do, rule.Code, rule.Times = proxy.Refuse, mayNot, -1
	p.Set(rule)
	defer p.Clear()
	r := s.fails(ExitRefused, []string{"refused by the proxy"}, append(args, "-o", "json")...)
	r.json(into)
	return r
}

func TestACommandThatFailsMidwaySaysWhatItDid(t *testing.T) {
	s, p := behind(t)
	s.ok("send", "t", "--key", "first")
	s.ok("send", "t", "--key", "second")
	var tasks struct{ Tasks []struct{ ID string } }
	s.failsMidway(p, proxy.Rule{Command: "update", Collection: "tasks", Contains: "t/second"}, &tasks, "task", "cancel", "t/first", "t/second")
	require.Len(t, tasks.Tasks, 1)
	require.Equal(t, "-/t/first", tasks.Tasks[0].ID)

	var flows struct{ Flows []struct{ ID string } }
	file := s.file("key: first\nnodes: [{id: a, type: t}]\n---\nkey: second\nnodes: [{id: a, type: t}]\n")
	s.failsMidway(p, proxy.Rule{Collection: "flows", Contains: "second"}, &flows, "flow", "start", "-f", file)
	require.Len(t, flows.Flows, 1)
	require.Equal(t, "-/first", flows.Flows[0].ID)

	var plans struct{ Plans []any }
	var many strings.Builder
	for i := range maxPublished {
		fmt.Fprintf(&many, "---\nplan_id: p%d\nstation: t\nplan_type: none\nmessages: [1]\n", i)
	}
	many.WriteString("---\nplan_id: the-last\nstation: t\nplan_type: none\nmessages: [1]\n")
	s.failsMidway(p, proxy.Rule{Collection: "plans", Contains: "the-last"}, &plans, "plan", "publish", "-f", s.file(many.String()))
	require.Len(t, plans.Plans, maxPublished)

	var applied struct {
		Rules []struct{ Name, Result string }
		Dry   *bool `json:"dry_run"`
	}
	file = s.file("name: first\ncron: '@daily'\ntype: t\n---\nname: second\ncron: '@daily'\ntype: t\n")
	s.failsMidway(p, proxy.Rule{Command: "insert", Collection: "periodic_rules", Contains: "second"}, &applied, "periodic", "apply", "-f", file)
	require.Len(t, applied.Rules, 1)
	require.Equal(t, "first", applied.Rules[0].Name)
	require.Equal(t, "created", applied.Rules[0].Result)
	require.False(t, *applied.Dry)

	s.ok("periodic", "apply", "-f", file)
	var listed struct{ Rules []struct{ ID string } }
	s.ok("periodic", "list", "-o", "json").json(&listed)
	require.Len(t, listed.Rules, 2)
	var changed struct {
		Rules []struct{ Name, Status string }
	}
	s.failsMidway(p, proxy.Rule{Command: "update", Collection: "periodic_rules", Contains: listed.Rules[1].ID}, &changed, "periodic", "enable", "first", "second")
	require.Len(t, changed.Rules, 1)
	require.Equal(t, "first", changed.Rules[0].Name)
}

func TestAnAppendThatFailsMidwaySaysWhichNodesItAppended(t *testing.T) {
	s, p := behind(t)
	file := s.file(strings.Repeat(`{"type": "t"}`+"\n", perAppend) + `{"id": "one-too-many", "type": "t"}`)
	var appended struct {
		Stream string
		Nodes  []string
	}
	r := s.failsMidway(p, proxy.Rule{Contains: "one-too-many"}, &appended, "flow", "append", "orders", "a", "-f", file)
	require.Equal(t, "orders/a", appended.Stream)
	require.Len(t, appended.Nodes, perAppend)
	require.Contains(t, r.stderr, "the first 1000 nodes were appended before this error, the last of them with the id "+appended.Nodes[perAppend-1]+":\n")
	s.ok("flow", "explain", "orders/a", appended.Nodes[perAppend-1])
}

func TestRunsAreCancelledAlsoBehindOneThatIsUnknown(t *testing.T) {
	s := newSession(t)
	s.ok("periodic", "apply", "-f", s.file("name: n\ncron: '@hourly'\ntype: t\nmax_concurrency: 1\n"))
	for _, request := range []string{"r1", "r2", "r3"} {
		s.ok("periodic", "trigger", "n", "--request", request)
	}
	var rules struct{ Rules []struct{ ID string } }
	s.ok("periodic", "list", "-o", "json").json(&rules)
	second, third, unknown := rules.Rules[0].ID+"!r2", rules.Rules[0].ID+"!r3", rules.Rules[0].ID+"!r9"
	var out struct{ Runs []string }
	s.fails(ExitRefused, []string{"mscheduler: " + unknown + ": the run neither runs nor waits"}, "periodic", "cancel", second, unknown, third, "-o", "json").json(&out)
	require.Equal(t, []string{second, third}, out.Runs)
	require.Len(t, s.runsOf("n", "--status", "CANCELED").Runs, 2)

	outcomes := map[string]string{}
	for _, e := range s.audit("--operation", "periodic cancel") {
		outcomes[strings.TrimPrefix(e.Resource, "-/")] = e.Outcome
	}
	require.Equal(t, map[string]string{second: "ok", unknown: "refused", third: "ok"}, outcomes)
}
