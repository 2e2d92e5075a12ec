package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// The kinds of things whose documents an entry compares. Their ids are those of paths and of the command
// line: tenant/type/key, tenant/name, tenant/run, scene/group; - stands for no tenant.
const (
	Task   = "task"
	Bulk   = "bulk"
	Type   = "type"
	Rule   = "periodic"
	Plan   = "plan"
	Flow   = "flow"
	Stream = "stream"
	Worker = "worker"
	Pauses = "pauses" // what is paused; it has no id
	Token  = "token"
	Run    = "run" // of a rule; an entry has no document of it
)

// Kinds are all of them.
var Kinds = []string{Task, Type, Rule, Plan, Flow, Stream, Run, Bulk, Worker, Pauses, Token}

// Thing names what a change is about.
type Thing struct{ Kind, ID string }

// Tenant is whose it is; "" = it belongs to no tenant.
func (t Thing) Tenant() string {
	switch t.Kind {
	case Task, Rule, Plan, Flow, Run, Bulk:
		tenant, _, _ := strings.Cut(t.ID, "/")
		return tenant
	default:
		return ""
	}
}

// Snapshot is the document of a thing at one time. nil = there is none.
type Snapshot struct {
	shown map[string]json.RawMessage // its fields in their written form, without secrets
	raw   bson.Raw                   // as it is stored, where that tells more: whether a secret has changed
}

// Take reads the document of a thing. What has no document is nil, and so is a kind without documents.
func Take(ctx context.Context, st *store.Store, t Thing) (*Snapshot, error) {
	switch t.Kind {
	case Task:
		raw, err := st.History.LifeRaw(ctx, t.ID, 0)
		return stored(raw, err, "id", true)
	case Type:
		return takeType(ctx, st, t.ID)
	case Rule:
		tenant, name, _ := strings.Cut(t.ID, "/")
		rule, err := st.Rules.Living(ctx, tenant, name)
		return encoded(rule, err, "id")
	case Plan:
		plan, err := st.Plans.Get(ctx, t.ID)
		return encoded(plan, err, "id")
	case Flow, Stream:
		doc, err := st.Flows.Get(ctx, t.ID)
		if err != nil {
			return none(err)
		}
		if t.Kind == Stream {
			return shownAs(view.StreamOf(doc, 0))
		}
		return shownAs(view.FlowOf(doc))
	case Pauses:
		c, err := st.Control.Read(ctx)
		if err != nil {
			return nil, err
		}
		return shownAs(map[string]any{"all": c.PausedAll, "types": append([]string{}, c.PausedTypes...)})
	case Worker:
		w, err := st.Workers.Get(ctx, t.ID)
		if err != nil || w == nil {
			return nil, err
		}
		return shownAs(map[string]any{"drain": view.WorkerOf(w, st.Clock.Now()).Drain})
	case Token:
		found, err := st.Tokens.ByIDs(ctx, []string{t.ID})
		if token := found[t.ID]; err == nil && token != nil {
			return shownAs(view.TokenOf(token, st.Clock.Now()))
		}
		return nil, err
	default:
		return nil, nil
	}
}

func takeType(ctx context.Context, st *store.Store, code string) (*Snapshot, error) {
	c, err := st.Control.Read(ctx)
	if err != nil {
		return nil, err
	}
	typ, err := st.Types.Get(ctx, code)
	s, err := encoded(typ, err, "code")
	if s == nil && err == nil {
		s = &Snapshot{shown: map[string]json.RawMessage{}}
	}
	if err == nil {
		s.shown["paused"] = json.RawMessage(fmt.Sprint(slices.Contains(c.PausedTypes, code)))
	}
	return s, err
}

// none is the snapshot of what is not there.
func none(err error) (*Snapshot, error) {
	for _, unknown := range []error{store.ErrNotFound, store.ErrNoType, store.ErrNoRule, store.ErrNoPlan, store.ErrNoFlow} {
		if errors.Is(err, unknown) {
			return nil, nil
		}
	}
	return nil, err
}

// encoded is the snapshot of a document that was decoded.
func encoded[T any](doc *T, err error, key string) (*Snapshot, error) {
	if err != nil {
		return none(err)
	}
	raw, err := view.Encode(doc)
	return stored(raw, err, key, false)
}

// stored is the snapshot of a document; brief has sizes in the place of payloads.
func stored(raw bson.Raw, err error, key string, brief bool) (*Snapshot, error) {
	if err != nil {
		return none(err)
	}
	text, err := view.Document(raw, key)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{raw: raw}
	return s, json.Unmarshal([]byte(masked(text, brief)), &s.shown)
}

func shownAs(v any) (*Snapshot, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing a document: %w", err)
	}
	s := &Snapshot{}
	return s, json.Unmarshal([]byte(masked(text, false)), &s.shown)
}

// Changed is what a change has made of a thing: the fields that differ, as JSON, as they were and as they
// are; "" = there is no document, or nothing differs. Fields that are large are replaced by their sizes.
func Changed(before, after *Snapshot) (was, is string) {
	if before == nil || after == nil {
		return before.text(nil), after.text(nil)
	}
	same := func(field string) bool {
		if before.raw != nil && after.raw != nil {
			x, errX := before.raw.LookupErr(field)
			y, errY := after.raw.LookupErr(field)
			if errX == nil && errY == nil {
				return x.Equal(y)
			}
		}
		return bytes.Equal(before.shown[field], after.shown[field])
	}
	return before.text(same), after.text(same)
}

// text is the snapshot without some fields.
func (s *Snapshot) text(without func(field string) bool) string {
	if s == nil {
		return ""
	}
	out := map[string]json.RawMessage{}
	for field, value := range s.shown {
		if without != nil && without(field) {
			continue
		}
		if len(value) > maxField {
			value, _ = json.Marshal(fmt.Sprintf("(%d bytes)", len(value)))
		}
		out[field] = value
	}
	if len(out) == 0 {
		return ""
	}
	text, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(text)
}
