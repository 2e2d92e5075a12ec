package form

import (
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Flow is a graph of tasks.
type Flow struct {
	Key         string     `json:"key,omitzero"`
	Tenant      string     `json:"tenant,omitzero"`
	Creator     string     `json:"creator,omitzero"`
	Category    string     `json:"category,omitzero"`
	Description string     `json:"description,omitzero"`
	Args        Value      `json:"args,omitzero"`
	Nodes       []FlowNode `json:"nodes,omitzero"`
	Ext         Value      `json:"ext,omitzero"`
	Callback    *Callback  `json:"callback,omitzero"` // success: the flow is FINISH; error: a node is PENDING
}

// FlowNode is a node of a flow.
type FlowNode struct {
	ID        string           `json:"id,omitzero"`
	Type      string           `json:"type,omitzero"`
	After     []string         `json:"after,omitzero"`
	Args      Value            `json:"args,omitzero"`
	Wait      *Wait            `json:"wait,omitzero"` // a node without a task
	Ask       *Ask             `json:"ask,omitzero"`  // a node without a task
	Flow      *Flow            `json:"flow,omitzero"` // that the node starts
	Each      *Each            `json:"each,omitzero"` // a task for each element
	When      map[string]Value `json:"when,omitzero"` // by parent, a filter on its output
	Join      *Join            `json:"join,omitzero"`
	OnFailure string           `json:"on_failure,omitzero"` // suspend, continue, end
	Priority  *int             `json:"priority,omitzero"`
	Options   *Options         `json:"options,omitzero"`
}

// renamed are the fields of seed 002 and of other engines that have other names here.
func (FlowNode) renamed() map[string]string {
	return map[string]string{
		"parents": "use after", "depends": "use after", "depends_on": "use after", "needs": "use after",
		"handler": "use type", "failure_policy": "use on_failure", "strategy": "use join: {strategy: ...}", "condition": "use when",
		"timeout": "use options: {timeout: ...}", "retry": "use options: {retry: ...}", "callback": "use options: {callback: ...}",
	}
}

// Wait says how long a node waits; the duration alone will do.
type Wait struct {
	For   Duration `json:"for,omitzero"`
	Until Value    `json:"until,omitzero"` // a time, or a reference to one
}

func (Wait) short() string { return "for" }

// Ask is what a person is asked for; the title alone will do.
type Ask struct {
	Title  string     `json:"title,omitzero"`
	Fields []AskField `json:"fields,omitzero"`
}

func (Ask) short() string { return "title" }

// Each says for which elements a node has tasks.
type Each struct {
	Items Value `json:"items,omitzero"`
	Limit int   `json:"limit,omitzero"`
	Max   int   `json:"max,omitzero"`
}

// AskField is one value that a person is asked for.
type AskField struct {
	Name     string   `json:"name,omitzero"`
	Kind     string   `json:"kind,omitzero"` // string, number, bool, choice
	Required bool     `json:"required,omitzero"`
	Choices  []string `json:"choices,omitzero"`
	Help     string   `json:"help,omitzero"`
}

// Join says when a node with parents starts; the strategy alone will do.
type Join struct {
	Strategy string   `json:"strategy,omitzero"` // all_succeeded, all_ended, at_least, these, custom
	N        int      `json:"n,omitzero"`
	Nodes    []string `json:"nodes,omitzero"`
	Custom   string   `json:"custom,omitzero"`
	Context  Value    `json:"context,omitzero"`
}

func (Join) short() string { return "strategy" }

// Spec is the flow that the form says, not yet checked.
func (f *Flow) Spec() (out graph.Spec, err error) {
	convert(&out, f)
	own := Options{Callback: f.Callback} // which may have its key in short
	about, _ := own.Model(noZone, noNow) // of times alone there are errors
	out.Callback = about.Callback
	var errs []error
	for i := range f.Nodes {
		if inner := f.Nodes[i].Flow; inner != nil {
			s, err := inner.Spec()
			out.Nodes[i].Flow = &s
			errs = append(errs, input.Under(fmt.Sprintf("nodes[%d].flow", i), err))
		}
		o := f.Nodes[i].Options
		if o == nil {
			continue
		}
		out.Nodes[i].Options, err = o.Model(noZone, noNow)
		errs = append(errs, input.Under(fmt.Sprintf("nodes[%d].options", i), err))
	}
	return out, errors.Join(errs...)
}

// FlowOf is a flow as a file says it, without its secrets.
func FlowOf(s *graph.Spec) *Flow {
	out := &Flow{}
	convert(out, s)
	out.Callback = OptionsOf(&model.Options{Callback: s.Callback}).Callback
	for i := range s.Nodes {
		if out.Nodes[i].Options = OptionsOf(&s.Nodes[i].Options); s.Nodes[i].Options.IsZero() {
			out.Nodes[i].Options = nil
		}
		if inner := s.Nodes[i].Flow; inner != nil {
			out.Nodes[i].Flow = FlowOf(inner)
		}
	}
	return out
}
