package rulespec

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Unchanged reports whether the spec is the definition that the rule has: an edit would store the
// same. The order of the fields of objects does not matter, and Enabled is no part of the definition.
func Unchanged(box *secret.Box, s schedule.Spec, stored *schedule.Rule) bool {
	s, err := Keep(box, s, stored)
	if err != nil {
		return false // Seal says what is wrong
	}
	old := Of(stored)
	now, was := definition(&s), definition(&old)
	return now != nil && reflect.DeepEqual(now, was)
}

// definition is what is stored of a spec, with the fields of objects in one order; nil = the spec is
// not valid.
func definition(s *schedule.Spec) any {
	r, _, err := Build(s, time.Unix(0, 0)) // the definition does not depend on whether it still fires
	if err != nil {
		return nil
	}
	data, err := codec.Encode(r)
	var doc bson.D
	if err != nil || bson.Unmarshal(data, &doc) != nil {
		return nil
	}
	order(doc)
	return doc
}

// order sorts the fields of a value's objects.
func order(v any) {
	switch v := v.(type) {
	case bson.D:
		slices.SortFunc(v, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
		for _, e := range v {
			order(e.Value)
		}
	case bson.A:
		for _, e := range v {
			order(e)
		}
	}
}
