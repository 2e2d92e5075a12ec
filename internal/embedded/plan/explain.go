package plan

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Explain describes the plan as MongoDB's winningPlan does.
func (p *Plan) Explain() bson.D {
	if !p.blocking {
		return p.explain()
	}
	pattern := bson.D{}
	for _, f := range p.q.Sort.Fields {
		sign := int32(1)
		if f.Descending {
			sign = -1
		}
		pattern = append(pattern, bson.E{Key: f.Path, Value: sign})
	}
	return stage("SORT", field("sortPattern", pattern), field("inputStage", p.explain()))
}

func field(name string, v any) bson.E { return bson.E{Key: name, Value: v} }

func stage(name string, fields ...bson.E) bson.D {
	return append(bson.D{field("stage", name)}, fields...)
}

func (a *access) explain() bson.D {
	switch {
	case a.none:
		return stage("EOF")
	case a.point:
		return stage("IDHACK")
	case a.index == nil && len(a.any) == 0:
		return stage("COLLSCAN", field("direction", a.direction()))
	}
	return stage("FETCH", field("inputStage", a.explainScans()))
}

func (a *access) direction() string {
	if a.reverse {
		return "backward"
	}
	return "forward"
}

// explainScans describes the scan of an index, or those that are joined.
func (a *access) explainScans() bson.D {
	var inputs bson.A
	switch {
	case a.none:
		return stage("EOF")
	case len(a.any) > 0:
		for i := range a.any {
			inputs = append(inputs, a.any[i].explainScans())
		}
		return stage("OR", field("inputStages", inputs))
	case len(a.prefixes) > 1:
		for range a.prefixes {
			inputs = append(inputs, a.explainScan())
		}
		return stage("SORT_MERGE", field("inputStages", inputs))
	}
	return a.explainScan()
}

func (a *access) explainScan() bson.D {
	spec := a.index.Spec
	bounds := bson.D{}
	for i, f := range spec.Fields {
		what := fmt.Sprintf("%d intervals", len(a.bounds[i]))
		if isAll(a.bounds[i]) {
			what = "[MinKey, MaxKey]"
		} else if isPoints(a.bounds[i]) {
			what = fmt.Sprintf("%d points", len(a.bounds[i]))
		}
		bounds = append(bounds, field(f.Path, bson.A{what}))
	}
	return stage("IXSCAN", field("keyPattern", spec.Key), field("indexName", spec.Name),
		field("isMultiKey", a.index.AnyMultikey()), field("isUnique", spec.Unique), field("isSparse", spec.Sparse),
		field("isPartial", spec.Partial != nil), field("direction", a.direction()), field("indexBounds", bounds))
}
