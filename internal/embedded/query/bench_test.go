package query

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func mustRaw(v any) bson.Raw {
	b, err := bson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func benchTask() bson.Raw {
	d := bson.D{{Key: "_id", Value: "tenant/type/key"}}
	for i := range 20 {
		d = append(d, bson.E{Key: fmt.Sprintf("field_number_%d", i), Value: int64(i)})
	}
	d = append(d, bson.E{Key: "due_at", Value: bson.DateTime(1000)}, bson.E{Key: "state", Value: "READY"},
		bson.E{Key: "worker_states", Value: bson.A{bson.D{{Key: "exec_id", Value: "e1"}, {Key: "ping_expire_time", Value: bson.DateTime(5)}}}})
	return mustRaw(d)
}

func BenchmarkMatchOfAClaim(b *testing.B) {
	doc := benchTask()
	f, err := CompileFilter(mustRaw(bson.D{{Key: "state", Value: "READY"}, {Key: "due_at", Value: bson.D{{Key: "$lte", Value: bson.DateTime(2000)}}},
		{Key: "worker_states", Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "exec_id", Value: "e1"}}}}}}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !f.Match(doc) {
			b.Fatal("no match")
		}
	}
}

func BenchmarkApplyOfAPing(b *testing.B) {
	doc := benchTask()
	u, err := CompileUpdate(mustRaw(bson.D{{Key: "$set", Value: bson.D{{Key: "worker_states.0.ping_expire_time", Value: bson.DateTime(9)}}}, {Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}}), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, modified, err := u.Apply(doc, ApplyContext{Positional: -1}); err != nil || !modified {
			b.Fatal(err)
		}
	}
}
