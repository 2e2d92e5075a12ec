// Package value knows BSON values: how MongoDB orders them, how to turn them
// into bytes that sort the same way, which keys an index holds for a document,
// and how numbers of different types add and multiply.
//
// It reads documents in place (see Iter) and keeps nothing; everything here is
// a pure function. Documents handed in are trusted to be valid BSON, as the
// wire layer validates what it receives; an invalid one ends an iteration
// early but never panics.
package value
