package plan

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Explain describes the plan as MongoDB's winningPlan does.
func (p *Plan) Explain() bson.D {
	stage := p.access.explain()
	if p.blocking {
		pattern := bson.D{}
		for _, f := range p.q.Sort.Fields {
			pattern = append(pattern, bson.E{Key: f.Path, Value: direction(f.Descending)})
		}
		stage = bson.D{{Key: "stage", Value: "SORT"}, {Key: "sortPattern", Value: pattern}, {Key: "inputStage", Value: stage}}
	}
	return stage
}

func direction(descending bool) int32 {
	if descending {
		return -1
	}
	return 1
}

func (a *access) explain() bson.D {
	way := "forward"
	if a.reverse {
		way = "backward"
	}
	switch {
	case a.none:
		return bson.D{{Key: "stage", Value: "EOF"}}
	case a.point:
		return bson.D{{Key: "stage", Value: "IDHACK"}}
	case len(a.any) > 0:
		var inputs bson.A
		for i := range a.any {
			inputs = append(inputs, a.any[i].explainScans())
		}
		return fetch(bson.D{{Key: "stage", Value: "OR"}, {Key: "inputStages", Value: inputs}})
	case a.index == nil:
		return bson.D{{Key: "stage", Value: "COLLSCAN"}, {Key: "direction", Value: way}}
	}
	return fetch(a.explainScans())
}

func fetch(input bson.D) bson.D {
	return bson.D{{Key: "stage", Value: "FETCH"}, {Key: "inputStage", Value: input}}
}

// explainScans describes the scan of an index, or those that are merged.
func (a *access) explainScans() bson.D {
	if a.none {
		return bson.D{{Key: "stage", Value: "EOF"}}
	}
	if len(a.prefixes) <= 1 {
		return a.explainScan()
	}
	var inputs bson.A
	for range a.prefixes {
		inputs = append(inputs, a.explainScan())
	}
	return bson.D{{Key: "stage", Value: "SORT_MERGE"}, {Key: "inputStages", Value: inputs}}
}

func (a *access) explainScan() bson.D {
	way := "forward"
	if a.reverse {
		way = "backward"
	}
	bounds := bson.D{}
	for i, f := range a.index.Spec.Fields {
		what := fmt.Sprintf("%d intervals", len(a.bounds[i]))
		if isAll(a.bounds[i]) {
			what = "[MinKey, MaxKey]"
		} else if isPoints(a.bounds[i]) {
			what = fmt.Sprintf("%d points", len(a.bounds[i]))
		}
		bounds = append(bounds, bson.E{Key: f.Path, Value: bson.A{what}})
	}
	return bson.D{
		{Key: "stage", Value: "IXSCAN"}, {Key: "keyPattern", Value: a.index.Spec.Key},
		{Key: "indexName", Value: a.index.Spec.Name}, {Key: "isMultiKey", Value: a.index.AnyMultikey()},
		{Key: "isUnique", Value: a.index.Spec.Unique}, {Key: "isSparse", Value: a.index.Spec.Sparse},
		{Key: "isPartial", Value: a.index.Spec.Partial != nil}, {Key: "direction", Value: way},
		{Key: "indexBounds", Value: bounds},
	}
}
