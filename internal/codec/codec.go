package codec

import (
	"fmt"
	"reflect"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Registry encodes the documents of this package: a time.Duration is a whole number of
// milliseconds (its field is named *_ms), everything else as the driver does it.
func Registry() *bson.Registry {
	r := bson.NewRegistry()
	d := reflect.TypeFor[time.Duration]()
	r.RegisterTypeEncoder(d, bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
		return w.WriteInt64(time.Duration(v.Int()).Milliseconds())
	}))
	r.RegisterTypeDecoder(d, bson.ValueDecoderFunc(func(_ bson.DecodeContext, r bson.ValueReader, v reflect.Value) error {
		var ms int64
		switch r.Type() {
		case bson.TypeInt32:
			n, err := r.ReadInt32()
			if err != nil {
				return err
			}
			ms = int64(n)
		case bson.TypeInt64:
			n, err := r.ReadInt64()
			if err != nil {
				return err
			}
			ms = n
		case bson.TypeDouble: // written by a shell
			f, err := r.ReadDouble()
			if err != nil {
				return err
			}
			ms = int64(f)
		default:
			return fmt.Errorf("a duration in milliseconds cannot be a %s", r.Type())
		}
		v.SetInt(int64(time.Duration(ms) * time.Millisecond))
		return nil
	}))
	return r
}
