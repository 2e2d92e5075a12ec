// Package storage keeps collections of documents with their indexes, orders the
// writes to them and makes them durable.
//
// Documents and index keys lie in copy-on-write trees. A frozen Collection never
// changes: readers and cursors keep one as long as they like. The live one belongs
// to whoever holds the store's lock, a Writer; Txn has copies of its own.
//
//	Snapshot, Collection, Index   what readers see
//	Writer, Modify, Insert        how one command writes, and waits for transactions
//	Txn, intent                   snapshot, own copies, conflicts found at the write
//	batch, flush, file            many writers, one fsync; then publish, log, answer
//	Log, Event                    what change streams read
//	Retry                         what retried commands find
//
// It knows BSON keys and filters (for partial indexes) but no command and no plan.
package storage
