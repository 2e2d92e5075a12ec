package query

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

func TestAnIDIsNotTakenForAnOperator(t *testing.T) {
	for doc, code := range map[string]int32{
		`{"_id": {"x": {"y": 1}}}`:                     0,
		`{"_id": {"$ref": "c", "$id": 1, "$db": "d"}}`: 0,
		`{"_id": {"$x": 1}}`:                           mongoerr.DollarPrefixedFieldName,
		`{"_id": {"x": {"$x": 1}}}`:                    mongoerr.DollarPrefixedFieldName,
		`{"_id": {"x": [{"$x": 1}]}}`:                  mongoerr.DollarPrefixedFieldName,
		`{"_id": [1]}`:                                 mongoerr.InvalidIDField,
		`{"_id": {"$regularExpression": {"pattern": "a", "options": ""}}}`: mongoerr.InvalidIDField,
	} {
		d := raw(t, doc)
		require.Equal(t, code, mongoerr.Code(CheckStorable(d, d.Lookup("_id"))), doc)
	}
}
