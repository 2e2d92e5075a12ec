package codec

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// odd has what the documents of today do not have: fields that are stored though they say nothing, and types that
// only the driver knows.
type odd struct {
	List    []string        `bson:"list"`
	Pointer *int            `bson:"pointer"`
	At      *time.Time      `bson:"at,omitempty"`
	Empty   struct{ N int } `bson:"empty,omitempty"`
	Options model.Options   `bson:"options"`
	Any     any             `bson:"any,omitempty"`
	Map     map[string]any  `bson:"map,omitempty"`
	Bytes   []byte          `bson:"bytes,omitempty"`
	Small   int32           `bson:"small,omitempty"`
	ID      bson.ObjectID   `bson:"oid,omitempty"`
	Doc     bson.D          `bson:"doc,omitempty"`
	Raw     bson.RawValue   `bson:"raw"` // an error while it says nothing
	Inner   *odd            `bson:"inner,omitempty"`
	Never   int             `bson:"-"`
}

// untold has a field whose name only the driver knows.
type untold struct {
	A    int `bson:"a"`
	Name string
}

func ofTypes(types ...any) (out []reflect.Type) {
	for _, v := range types {
		out = append(out, reflect.TypeOf(v))
	}
	return out
}

var storedTypes = ofTypes(schedule.Rule{}, schedule.Run{}, repeat.Plan{}, repeat.Result{}, graph.Flow{}, graph.Node{}, graph.State{}, model.Task{}, odd{}, untold{})

func TestAStructIsWrittenAndReadAsTheDriverDoesIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := reflect.New(rapid.SampledFrom(storedTypes).Draw(t, "type"))
		drawn(t, v.Elem(), "document")
		want, refused := writeByDriver(v.Interface())
		got, err := Encode(v.Interface())
		if refused != nil {
			require.EqualError(t, err, refused.Error())
			return
		}
		require.NoError(t, err)
		require.Equal(t, want.String(), got.String())
		require.Equal(t, []byte(want), []byte(got))

		read, readBack := reflect.New(v.Type().Elem()), reflect.New(v.Type().Elem())
		require.NoError(t, readByDriver(got, read.Interface()))
		again := bytes.Clone(got)
		p, at := planFor(readBack.Interface())
		if p == nil {
			require.NoError(t, Decode(again, readBack.Interface()))
		} else {
			r := TaskReader{apart: true}
			require.NoError(t, r.document(p, at, again), "field by field")
		}
		for i := range again {
			again[i] = 0xee // it may be used again
		}
		require.Equal(t, read.Interface(), readBack.Interface())
	})
}

func TestChangesTurnOneDocumentIntoAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom(storedTypes[:len(storedTypes)-2]).Draw(t, "type")
		before, after := reflect.New(of), reflect.New(of)
		drawn(t, before.Elem(), "before")
		after.Elem().Set(before.Elem())
		for i := range of.NumField() {
			if rapid.Bool().Draw(t, "changed") {
				after.Elem().Field(i).SetZero()
				drawn(t, after.Elem().Field(i), "after")
			}
		}
		was, err := Encode(before.Interface())
		require.NoError(t, err)
		is, err := Encode(after.Interface())
		require.NoError(t, err)
		set, unset, err := Changes(before.Interface(), after.Interface())
		require.NoError(t, err)

		fields := map[string]string{}
		apply := func(doc bson.Raw, do func(key string, v bson.RawValue)) {
			elements, err := doc.Elements()
			require.NoError(t, err)
			for _, e := range elements {
				do(e.Key(), e.Value())
			}
		}
		put := func(key string, v bson.RawValue) { fields[key] = v.String() }
		apply(was, put)
		if set != nil {
			apply(set, func(key string, v bson.RawValue) {
				require.NotEqual(t, fields[key], v.String(), "%s has changed", key)
				put(key, v)
			})
		}
		if unset != nil {
			apply(unset, func(key string, _ bson.RawValue) {
				require.Contains(t, fields, key)
				delete(fields, key)
			})
		}
		want := map[string]string{}
		apply(is, func(key string, v bson.RawValue) { want[key] = v.String() })
		require.Equal(t, want, fields)
	})
}

func TestChangesThatCannotBeStoredAreAnError(t *testing.T) {
	_, _, err := Changes(&odd{}, &odd{Any: make(chan int)})
	require.ErrorContains(t, err, "chan int")
	_, err = Encode(&odd{Raw: bson.RawValue{Type: bson.TypeNull}, Inner: &odd{Any: make(chan int)}})
	require.Error(t, err)
	_, _, err = Changes(&untold{}, &untold{A: 1})
	require.ErrorContains(t, err, "struct tags")
}

// What the driver codes is slow, and what engines decide about is written and read by the thousand.
func TestNothingOfWhatEnginesStoreIsLeftToTheDriver(t *testing.T) {
	var left func(p plan) []string
	leftOf := func(c *column) []string {
		for c.of != nil {
			c = c.of
		}
		if c.kind == kindOther {
			return []string{c.typ.String()}
		}
		return left(c.fields)
	}
	left = func(p plan) (out []string) {
		for i := range p {
			out = append(out, leftOf(&p[i])...)
		}
		return out
	}
	for _, of := range storedTypes[:len(storedTypes)-2] {
		p, _ := planFor(reflect.New(of).Interface())
		require.NotNil(t, p)
		found := left(p)
		slices.Sort(found)
		switch of {
		case reflect.TypeFor[graph.Flow](): // of nodes that start flows, or have elements: few
			require.Equal(t, []string{"graph.Spec", "interface {}", "interface {}", "interface {}", "interface {}", "interface {}", "interface {}", "interface {}", "map[string]interface {}"}, found)
		default:
			require.Empty(t, found, of.Name())
		}
	}
}

func BenchmarkReadPlans(b *testing.B) {
	doc, err := Encode(&repeat.Plan{ID: "-/p", PlanID: "p", Station: "s", Status: repeat.StatusRunning, CreatedAt: time.Unix(1, 0), Planned: []repeat.Planned{{ID: "1.1", Do: "send"}}})
	require.NoError(b, err)
	for name, read := range map[string]func([]byte, any) error{"plan": Decode, "driver": readByDriver} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, read(doc, new(repeat.Plan)))
			}
		})
	}
}
