package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// outcome renders what counts of an answer.
type outcome struct {
	fields []string
}

func (o *outcome) add(name string, v any) {
	switch x := v.(type) {
	case bson.RawValue:
		v = render(x)
	}
	o.fields = append(o.fields, fmt.Sprintf("%s=%v", name, v))
}

func render(v bson.RawValue) string { return v.String() }

// want is the recorded answer.
func (c *replayCase) want() string {
	var o outcome
	if c.Error != nil {
		o.add("error", c.Error.Code)
	} else {
		for it := value.NewIter(c.Reply); it.Next(); {
			switch key := string(it.Key); key {
			case "documents", "values":
				o.add(key, list(values(it.Value.Value), c.Ordered))
			case "writeErrors", "upserted":
				for e := value.NewIter(it.Value.Value); e.Next(); {
					o.add(key, e.Value)
				}
			default:
				o.add(key, it.Value)
			}
		}
	}
	slices.Sort(o.fields)
	if c.After != nil {
		o.add("after", list(c.After, true))
	}
	return strings.Join(o.fields, "\n      ")
}

func list(vs []bson.RawValue, ordered bool) string {
	ss := make([]string, len(vs))
	for i, v := range vs {
		ss[i] = render(v)
	}
	if !ordered {
		slices.Sort(ss)
	}
	return strings.Join(ss, " ")
}

// collection is the documents of c and its unique indexes.
type collection struct {
	docs   []bson.Raw
	unique []uniqueIndex
}

type uniqueIndex struct {
	fields []value.Field
	sparse bool
	filter *Filter
}

var errDuplicate = mongoerr.New(mongoerr.DuplicateKey, "duplicate key")

// check refuses doc in place of docs[at] when a unique index has its key.
func (col *collection) check(doc bson.Raw, at int) error {
	for _, ix := range append([]uniqueIndex{{fields: []value.Field{{Path: "_id"}}}}, col.unique...) {
		keys, err := ix.keys(doc)
		if err != nil {
			return err
		}
		for i, other := range col.docs {
			theirs, _ := ix.keys(other)
			for _, k := range theirs {
				if i != at && slices.Contains(keys, k) {
					return errDuplicate
				}
			}
		}
	}
	return nil
}

func (ix uniqueIndex) keys(doc bson.Raw) ([]string, error) {
	if ix.filter != nil && !ix.filter.Match(doc) {
		return nil, nil
	}
	keys, _, err := value.IndexKeys(doc, ix.fields, ix.sparse)
	var ss []string
	for _, k := range keys {
		ss = append(ss, string(k))
	}
	return ss, err
}

// run answers the command from the package's functions.
func (c *replayCase) run() string {
	col := &collection{docs: slices.Clone(c.Docs)}
	for _, raw := range c.Indexes {
		var ix struct {
			Key, Partial bson.Raw
			Unique       bool
			Sparse       bool
		}
		_ = bson.Unmarshal(raw, &ix)
		if p, ok := value.Lookup(raw, "partialFilterExpression"); ok {
			ix.Partial = p.Value
		}
		if !ix.Unique {
			continue
		}
		u := uniqueIndex{sparse: ix.Sparse}
		for it := value.NewIter(ix.Key); it.Next(); {
			n, _ := value.AsInteger(it.Value)
			u.fields = append(u.fields, value.Field{Path: string(it.Key), Descending: n < 0})
		}
		if ix.Partial != nil {
			u.filter, _ = CompileFilter(ix.Partial)
		}
		col.unique = append(col.unique, u)
	}
	var o outcome
	err := col.command(c, &o)
	if mongoerr.Code(err) == mongoerr.NotImplementedCode {
		return "refused: " + err.Error()
	}
	if err != nil {
		if mongoerr.Code(err) == mongoerr.InternalError {
			return err.Error()
		}
		o.fields = nil
		o.add("error", mongoerr.Code(err))
	}
	for _, f := range o.fields {
		if strings.Contains(f, `"$numberInt":"238"`) {
			return "refused: in a write"
		}
	}
	slices.Sort(o.fields)
	if c.After != nil {
		slices.SortFunc(col.docs, func(a, b bson.Raw) int {
			x, _ := value.Lookup(a, "_id")
			y, _ := value.Lookup(b, "_id")
			return value.Compare(x, y)
		})
		vs := make([]bson.RawValue, len(col.docs))
		for i, d := range col.docs {
			vs[i] = value.Document(c.masked(d))
		}
		o.add("after", list(vs, true))
	}
	return strings.Join(o.fields, "\n      ")
}

// masked hides the server's time as the record does.
func (c *replayCase) masked(doc bson.Raw) bson.Raw {
	v, ok := value.Lookup(doc, "new")
	if !c.Mask || !ok || v.Type != bson.TypeDateTime && v.Type != bson.TypeTimestamp {
		return doc
	}
	name := "<bson.DateTime>"
	if v.Type == bson.TypeTimestamp {
		name = "<bson.Timestamp>"
	}
	at, dst := value.Begin(nil)
	for it := value.NewIter(doc); it.Next(); {
		if string(it.Key) == "new" {
			it.Value = value.String(name)
		}
		dst = value.AppendElement(dst, string(it.Key), it.Value)
	}
	return value.End(dst, at)
}

func (col *collection) command(c *replayCase, o *outcome) error {
	var cmd struct {
		Filter, Query, Sort, Projection, Fields bson.Raw
		Update                                  bson.RawValue
		ArrayFilters                            []bson.Raw `bson:"arrayFilters"`
		Limit, Skip                             int64
		Key                                     string
		Pipeline                                []bson.Raw
		New, Upsert, Remove                     bool
		Updates, Deletes, Documents             []bson.Raw
		Ordered                                 *bool
	}
	if err := bson.Unmarshal(c.Command, &cmd); err != nil {
		return err
	}
	name, _ := c.Command.Elements()
	filter, err := CompileFilter(append(cmd.Filter, cmd.Query...))
	if err != nil {
		return err
	}
	sort, err := CompileSort(cmd.Sort)
	if err != nil {
		return err
	}
	projection, err := CompileProjection(append(cmd.Projection, cmd.Fields...), filter)
	if err != nil {
		return err
	}
	switch name[0].Key() {
	case "find", "count", "distinct":
		docs := col.find(filter)
		if sort != nil {
			if err := sort.Sort(docs); err != nil {
				return err
			}
		}
		docs = docs[min(int(cmd.Skip), len(docs)):]
		if cmd.Limit > 0 {
			docs = docs[:min(int(cmd.Limit), len(docs))]
		}
		switch name[0].Key() {
		case "count":
			o.add("n", value.Int32(int32(len(docs))))
			return nil
		case "distinct":
			o.add("values", list(Distinct(slices.Values(docs), cmd.Key), c.Ordered))
			return nil
		}
		return o.documents(docs, projection, c.Ordered)
	case "aggregate":
		p, err := CompilePipeline(cmd.Pipeline)
		if err != nil {
			return err
		}
		var docs []bson.Raw
		for d, err := range p.Run(func(yield func(bson.Raw, error) bool) {
			for _, d := range col.docs {
				if !yield(d, nil) {
					return
				}
			}
		}) {
			if err != nil {
				return err
			}
			docs = append(docs, d)
		}
		return o.documents(docs, nil, c.Ordered)
	case "insert":
		n, errs := int32(0), 0
		for i, d := range cmd.Documents {
			if err := col.insert(d); err != nil {
				o.writeError(i, err)
				errs++
				if cmd.Ordered == nil || *cmd.Ordered {
					break
				}
				continue
			}
			n++
		}
		o.add("n", value.Int32(n))
		return nil
	case "delete":
		n := int32(0)
		for _, raw := range cmd.Deletes {
			filter, err := CompileFilter(raw.Lookup("q").Document())
			if err != nil {
				return err
			}
			for _, d := range col.find(filter) {
				col.docs = slices.DeleteFunc(col.docs, func(e bson.Raw) bool { return &e[0] == &d[0] })
				n++
				if raw.Lookup("limit").AsInt64() == 1 {
					break
				}
			}
		}
		o.add("n", value.Int32(n))
		return nil
	case "update":
		return col.updates(cmd.Updates, cmd.Ordered == nil || *cmd.Ordered, o)
	case "findAndModify":
		return col.findAndModify(c, filter, sort, projection, cmd.Remove, cmd.Update.Value, cmd.ArrayFilters, cmd.New, cmd.Upsert, o)
	}
	return errors.New("unknown command")
}

func (o *outcome) documents(docs []bson.Raw, p *Projection, ordered bool) error {
	vs := make([]bson.RawValue, len(docs))
	for i, d := range docs {
		out, err := p.Apply(d)
		if err != nil {
			return err
		}
		vs[i] = value.Document(out)
	}
	o.add("documents", list(vs, ordered))
	return nil
}

func (o *outcome) writeError(i int, err error) {
	d, _ := bson.Marshal(bson.D{{Key: "index", Value: int32(i)}, {Key: "code", Value: mongoerr.Code(err)}})
	o.add("writeErrors", value.Document(d))
}

func (col *collection) find(f *Filter) []bson.Raw {
	var docs []bson.Raw
	for _, d := range col.docs {
		if f.Match(d) {
			docs = append(docs, d)
		}
	}
	return docs
}

func (col *collection) insert(d bson.Raw) error {
	d = idFirst(d)
	if err := col.check(d, -1); err != nil {
		return err
	}
	col.docs = append(col.docs, d)
	return nil
}

// change updates one document and returns it.
func (col *collection) change(d bson.Raw, f *Filter, u *Update) (bson.Raw, bool, error) {
	i := slices.IndexFunc(col.docs, func(e bson.Raw) bool { return &e[0] == &d[0] })
	ctx := ApplyContext{Positional: -1}
	if u.NeedsPositional() {
		_, ctx.Positional = f.MatchPositional(d)
	}
	out, modified, err := u.Apply(d, ctx)
	if err != nil || !modified {
		return d, false, err
	}
	if err := col.check(out, i); err != nil {
		return nil, false, err
	}
	col.docs[i] = out
	return out, true, nil
}

func (col *collection) updates(updates []bson.Raw, ordered bool, o *outcome) error {
	n, modified := int32(0), int32(0)
	for i, raw := range updates {
		err := func() error {
			var spec struct {
				Q, U          bson.Raw
				Multi, Upsert bool
				ArrayFilters  []bson.Raw `bson:"arrayFilters"`
			}
			if err := bson.Unmarshal(raw, &spec); err != nil {
				return err
			}
			u, err := CompileUpdate(spec.U, spec.ArrayFilters)
			if err != nil {
				return err
			}
			filter, err := CompileFilter(spec.Q)
			if err != nil {
				return err
			}
			docs := col.find(filter)
			if !spec.Multi && len(docs) > 1 {
				docs = docs[:1]
			}
			did := int32(0)
			for _, d := range docs {
				_, changed, err := col.change(d, filter, u)
				if err != nil {
					return err // what was changed stays changed, but is not counted
				}
				if changed {
					did++
				}
			}
			n += int32(len(docs))
			modified += did
			if len(docs) > 0 || !spec.Upsert {
				return nil
			}
			d, err := u.Upsert(filter, ApplyContext{Positional: -1})
			if err == nil {
				err = col.insert(d)
			}
			if err == nil {
				n++
				id, _ := value.Lookup(d, "_id")
				at, dst := value.Begin(nil)
				dst = value.AppendElement(dst, "index", value.Int32(int32(i)))
				o.add("upserted", value.Document(value.End(value.AppendElement(dst, "_id", id), at)))
			}
			return err
		}()
		if err != nil {
			o.writeError(i, err)
			if ordered {
				break
			}
		}
	}
	o.add("n", value.Int32(n))
	o.add("nModified", value.Int32(modified))
	return nil
}

func (col *collection) findAndModify(c *replayCase, f *Filter, s *Sort, p *Projection, remove bool, update bson.Raw, arrayFilters []bson.Raw, fresh, upsert bool, o *outcome) error {
	var u *Update
	if !remove {
		var err error
		if u, err = CompileUpdate(update, arrayFilters); err != nil {
			return err
		}
	}
	docs := col.find(f)
	if s != nil {
		if err := s.Sort(docs); err != nil {
			return err
		}
	}
	last := bson.D{{Key: "n", Value: int32(min(len(docs), 1))}}
	var result bson.Raw
	switch {
	case remove && len(docs) > 0:
		result = docs[0]
		col.docs = slices.DeleteFunc(col.docs, func(e bson.Raw) bool { return &e[0] == &result[0] })
	case remove:
	default:
		switch {
		case len(docs) > 0:
			out, _, err := col.change(docs[0], f, u)
			if err != nil {
				return err
			}
			last = append(last, bson.E{Key: "updatedExisting", Value: true})
			if result = docs[0]; fresh {
				result = out
			}
		case upsert:
			d, err := u.Upsert(f, ApplyContext{Positional: -1})
			if err == nil {
				err = col.insert(d)
			}
			if err != nil {
				return err
			}
			last = bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: false}, {Key: "upserted", Value: bson.Raw(d).Lookup("_id")}}
			if fresh {
				result = d
			}
		default:
			last = append(last, bson.E{Key: "updatedExisting", Value: false})
		}
	}
	leo, _ := bson.Marshal(last)
	o.add("lastErrorObject", value.Document(leo))
	if result == nil {
		o.add("value", value.Null)
		return nil
	}
	out, err := p.Apply(result)
	o.add("value", value.Document(c.masked(out)))
	return err
}
