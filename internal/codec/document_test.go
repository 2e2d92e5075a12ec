package codec

import (
	"bytes"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// drawn fills every field it can reach at random, also with zeros, so that a field that is
// added to a document later is tested, too.
func drawn(t *rapid.T, v reflect.Value, name string) {
	zero := rapid.Bool().Draw(t, name+"?")
	switch {
	case zero:
		return
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.UnixMilli(rapid.Int64Range(-1e12, 1e14).Draw(t, name)).UTC()))
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(rapid.Int64Range(-1e6, 1e9).Draw(t, name) * int64(time.Millisecond))
	case v.Type() == reflect.TypeFor[bson.RawValue]():
		value, err := EncodeValue("v", rapid.SampledFrom([]any{nil, 1, "x", map[string]any{"a": []any{1, map[string]any{"b": nil}}}}).Draw(t, name), input.MaxArgsBytes)
		require.NoError(t, err)
		v.Set(reflect.ValueOf(value))
	case v.Kind() == reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "a", "b/c", "é\x00", "-/t/k"}).Draw(t, name))
	case v.Kind() == reflect.Int:
		v.SetInt(rapid.SampledFrom([]int64{0, 1, -7, 1<<31 - 1, 1 << 40}).Draw(t, name))
	case v.Kind() == reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, name))
	case v.Kind() == reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e9, 1e9).Draw(t, name))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case v.Kind() == reflect.Interface:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]any{int64(1), "x", bson.D{{Key: "a", Value: bson.A{"b", nil}}}}).Draw(t, name)))
	case v.Kind() == reflect.Map:
		v.Set(reflect.ValueOf(map[string]any{"k": rapid.SampledFrom([]any{int64(1), "x"}).Draw(t, name)}))
	case v.Type() == reflect.TypeFor[bson.D]():
		v.Set(reflect.ValueOf(bson.D{{Key: "a", Value: int64(1)}}))
	case v.Kind() == reflect.Int32:
		v.SetInt(int64(rapid.Int32().Draw(t, name)))
	case v.Type() == reflect.TypeFor[bson.ObjectID](), v.Kind() == reflect.Uint8:
		v.Set(reflect.ValueOf([]any{bson.ObjectID{1, 2}, byte(7)}[map[bool]int{true: 1}[v.Kind() == reflect.Uint8]]))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		drawn(t, v.Elem(), name)
	case v.Kind() == reflect.Slice:
		for range rapid.IntRange(1, 3).Draw(t, name+" length") {
			e := reflect.New(v.Type().Elem()).Elem()
			drawn(t, e, name)
			v.Set(reflect.Append(v, e))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("bson") != "-" {
				drawn(t, v.Field(i), v.Type().Field(i).Name)
			}
		}
	default:
		t.Fatalf("%s is a %s, which this test does not know", name, v.Type())
	}
}

func drawTask(t *rapid.T) *model.Task {
	task := &model.Task{}
	for v, i := reflect.ValueOf(task).Elem(), 0; i < v.NumField(); i++ {
		drawn(t, v.Field(i), v.Type().Field(i).Name)
	}
	return task
}

func TestADocumentIsWrittenAsTheDriverWritesTheStruct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		task := drawTask(t)
		var want bytes.Buffer
		enc := bson.NewEncoder(bson.NewDocumentWriter(&want))
		enc.SetRegistry(Registry())
		require.NoError(t, enc.Encode(task))
		require.Equal(t, bson.Raw(want.Bytes()).String(), bson.Raw(AppendTask(nil, task)).String())
		require.Equal(t, want.Bytes(), AppendTask(nil, task))
	})
}

func taskByDriver(raw bson.Raw) (*model.Task, error) {
	var t model.Task
	dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	dec.SetRegistry(Registry())
	return &t, dec.Decode(&t)
}

func TestADocumentIsReadAsTheDriverReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r TaskReader
		for range 3 { // one reader, so that what it remembers is tested, too
			raw := bson.Raw(AppendTask(nil, drawTask(t)))
			want, err := taskByDriver(raw)
			require.NoError(t, err)
			read := bytes.Clone(raw)
			got := &model.Task{}
			require.NoError(t, r.task(got, read), "without the driver")
			for i := range read {
				read[i] = 0xee // it may be used again
			}
			require.Equal(t, want, got)
		}
	})
}

func TestADocumentInAnotherFormIsReadAsTheDriverReadsIt(t *testing.T) {
	for _, fields := range []bson.D{
		{{Key: "_id", Value: "-/t/k"}, {Key: "priority", Value: 7.0}, {Key: "generation", Value: int32(3)}},
		{{Key: "_id", Value: "-/t/k"}, {Key: "audience", Value: nil}, {Key: "due_at", Value: nil}, {Key: "options", Value: bson.D{{Key: "retention_ms", Value: 5.0}}}},
		{{Key: "_id", Value: "-/t/k"}, {Key: "audience", Value: bson.A{}}, {Key: "worker_states", Value: bson.A{}}, {Key: "of_a_later_release", Value: bson.D{{Key: "x", Value: 1}}}},
		{{Key: "worker_states", Value: bson.A{bson.D{{Key: "exec_id", Value: "e"}, {Key: "new", Value: true}}}}, {Key: "_id", Value: "-/t/k"}, {Key: "key", Value: "k"}},
		{{Key: "key", Value: "k"}, {Key: "_id", Value: "x"}, {Key: "args", Value: bson.Binary{Data: []byte{1}}}},
	} {
		raw, err := bson.Marshal(fields)
		require.NoError(t, err)
		want, err := taskByDriver(raw)
		require.NoError(t, err)
		var r TaskReader
		got, err := r.Read(raw)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	var r TaskReader
	for _, bad := range []bson.D{{{Key: "type", Value: 1}}, {{Key: "due_at", Value: "now"}}, {{Key: "worker_states", Value: "x"}}} {
		raw, err := bson.Marshal(bad)
		require.NoError(t, err)
		_, err = r.Read(raw)
		require.Error(t, err, "%v", bad)
	}
}

func FuzzDamagedDocumentsAreErrorsAndNotPanics(f *testing.F) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	task := &model.Task{
		ID: "-/t/k", Type: "t", Key: "k", Generation: 1, Rev: 2, Status: model.StatusExecuting, LapseAt: at.Add(time.Minute), UpdatedAt: at,
		Options:      model.Options{Retention: time.Hour, SpecificWorkerIDs: []string{"w"}},
		WorkerStates: []model.WorkerState{{WorkerID: "w", ExecID: "e", ClaimedAt: at, PingExpireTime: at.Add(time.Minute), Attempt: 1}},
	}
	f.Add(AppendTask(nil, task))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r TaskReader
		got := &model.Task{}
		if r.task(got, raw) != nil {
			return
		}
		want, err := taskByDriver(raw)
		if err == nil && bson.Raw(raw).Validate() == nil {
			require.Equal(t, want.ID, got.ID)
		}
	})
}

func TestOptionsThatSayNothingAreTheZeroOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o model.Options
		drawn(t, reflect.ValueOf(&o).Elem(), "options")
		require.Equal(t, reflect.ValueOf(o).IsZero(), o.IsZero())
		var p model.Options
		drawn(t, reflect.ValueOf(&p).Elem(), "others")
		encoded := func(o *model.Options) []byte { return optionsPlan.append(nil, unsafe.Pointer(o)) }
		same := func(o, p *model.Options) bool {
			return SameClaimed((*model.ClaimedOptions)(o), (*model.ClaimedOptions)(p))
		}
		require.Equal(t, bytes.Equal(encoded(&o), encoded(&p)), same(&o, &p))
		require.True(t, same(&o, &o))
	})
}
