package lifecycle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func TestADraftWithArgumentsThatDatabasesRefuseIsInvalid(t *testing.T) {
	big, err := codec.EncodeValue("args", strings.Repeat("x", input.MaxArgsBytes), input.MaxResultBytes)
	require.NoError(t, err)
	for name, args := range map[string]bson.RawValue{
		"too large":       big,
		"cut off":         {Type: bson.TypeEmbeddedDocument, Value: []byte{9, 0, 0, 0}},
		"bytes, no type":  {Value: []byte{1}},
		"an unknown type": {Type: 0x42, Value: []byte{1}},
		"half an integer": {Type: bson.TypeInt64, Value: []byte{1, 2}},
	} {
		d := Draft{Type: "email", Key: "k", Args: args}
		var invalid *model.InvalidError
		require.ErrorAs(t, d.Validate(), &invalid, name)
		require.Equal(t, "args", invalid.Field, name)
	}
	fine, err := codec.EncodeValue("args", map[string]any{"a": []int{1, 2}}, input.MaxArgsBytes)
	require.NoError(t, err)
	require.NoError(t, (&Draft{Type: "email", Key: "k", Args: fine}).Validate())
	require.NoError(t, (&Draft{Type: "email", Key: "k"}).Validate())
}
