package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// UnionWith takes the argument of the stage $unionWith apart: the name of a collection, and
// the pipeline that its documents go through.
func UnionWith(spec bson.RawValue) (collection string, pipeline []bson.Raw, err error) {
	defer catch(&err)
	if name, ok := spec.StringValueOK(); ok {
		return name, nil, nil
	}
	check(spec.Type == bson.TypeEmbeddedDocument, mongoerr.FailedToParse, "the $unionWith stage specification must be an object or string, but found %s", typeName(spec.Type))
	for it := value.NewIter(spec.Value); it.Next(); {
		switch string(it.Key) {
		case "coll":
			var ok bool
			collection, ok = it.Value.StringValueOK()
			check(ok, mongoerr.TypeMismatch, "BSON field '$unionWith.coll' is the wrong type '%s', expected type 'string'", typeName(it.Value.Type))
		case "pipeline":
			check(it.Value.Type == bson.TypeArray, 10065, "invalid parameter: expected an object (pipeline)")
			for _, stage := range value.Elements(it.Value.Value) {
				check(stage.Type == bson.TypeEmbeddedDocument, mongoerr.TypeMismatch, "Each element of the 'pipeline' array must be an object")
				pipeline = append(pipeline, stage.Value)
			}
		default:
			fail(40415, "BSON field '$unionWith.%s' is an unknown field.", it.Key)
		}
	}
	check(collection != "", 40414, "BSON field '$unionWith.coll' is missing but a required field")
	return collection, pipeline, nil
}
