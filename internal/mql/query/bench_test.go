package query

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// manyFields is a document of n fields, the update that sets all of them, and the
// document with its fields the other way round.
func manyFields(b *testing.B, n int) (doc bson.Raw, u *Update, turned bson.Raw) {
	var d, set bson.D
	for i := range n {
		d = append(d, bson.E{Key: fmt.Sprintf("k%06d", i), Value: 0})
		set = append(set, bson.E{Key: fmt.Sprintf("k%06d", i), Value: 1})
	}
	u, err := CompileUpdate(marshal(b, bson.D{{Key: "$set", Value: set}}), nil)
	require.NoError(b, err)
	doc = marshal(b, d)
	slices.Reverse(d)
	return doc, u, marshal(b, d)
}

// BenchmarkManyFields shows that the time for a field does not grow with their number.
func BenchmarkManyFields(b *testing.B) {
	for _, n := range []int{2, 10, 1000, 16000} {
		doc, u, turned := manyFields(b, n)
		perField := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/field")
		}
		b.Run(fmt.Sprint("set ", n), func(b *testing.B) {
			for b.Loop() {
				_, _, err := u.Apply(doc, ApplyContext{Positional: -1})
				require.NoError(b, err)
			}
			perField(b)
		})
		b.Run(fmt.Sprint("changed, same order ", n), func(b *testing.B) {
			for b.Loop() {
				Changed(doc, doc)
			}
			perField(b)
		})
		b.Run(fmt.Sprint("changed, other order ", n), func(b *testing.B) {
			for b.Loop() {
				Changed(doc, turned)
			}
			perField(b)
		})
	}
}
