// Package plan decides how a query reads a collection, and reads it.
//
// A filter's conditions on an indexed field become intervals of that field's
// keys; a condition that cannot be expressed becomes the whole range, so the
// intervals always hold at least the documents that match. Each document found
// is checked against the whole filter. An index can therefore make a query
// faster, never wrong.
//
//	{type: {$in: [a, b]}, due_at: {$lte: now}}  over  {type: 1, due_at: 1}
//
//	type    [a,a] [b,b]         points
//	due_at  [date, now]         a range, within its type
//
// A scan walks the index and, where a key lies outside the intervals of some
// field, seeks to the next key that may lie inside. To deliver a sort order that
// comes after points, one scan is made for each combination of points, and the
// scans are merged.
//
// The package reads only; it knows nothing of transactions or locks, since the
// collections it gets are frozen.
package plan
