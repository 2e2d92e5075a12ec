// Package embedded is a MongoDB-compatible server in the process, for machines
// that have none: development, tests and one small machine. The official driver
// talks to it over a socket, so all code above runs as it does on MongoDB.
//
//	driver ── wire ──▶ conn ──▶ request ──▶ command ──┬─ reads:  plan over a snapshot
//	                                                  └─ writes: storage.Writer
//	                                                               │
//	              published snapshot ◀── fsync ◀── batch ◀── live collections
//	              change log ◀────────────┘
//
// One lock orders the writers; it is held for some documents at a time. Readers
// take none: a snapshot of copy-on-write trees is theirs as long as they like.
// On a file, writes that arrive while one is being synced share the next
// transaction of the file, and nothing is seen (by a read, an event or the answer
// to the writer) before it is durable. A transaction writes to copies of its own
// and holds what it wrote until it ends.
//
// Where to look:
//
//	wire/     messages and their limits
//	plan/     which index serves a query, and reading it
//	storage/  collections, indexes, transactions, change log, file
//	here      connections, sessions, cursors, one function for each command
//	mql       the language: values, filters, updates, aggregation; a room of its own
//
// # What is supported
//
//	commands      insert update delete findAndModify find getMore killCursors count distinct
//	              aggregate explain create drop dropDatabase createIndexes dropIndexes
//	              listIndexes listCollections listDatabases validate
//	              commitTransaction abortTransaction endSessions
//	              hello ping buildInfo
//	queries       as package mql/query says; hint by name or key
//	indexes       single, compound, multikey, unique, sparse, partial, TTL
//	sessions      transactions over collections that exist or not, also creating them; retryable writes, remembered
//	              across restarts; causal consistency, since all is read at the newest state;
//	              a connection that ends takes the transaction along that it served last
//	streams       of a collection or a database; $match and $project behind; updateLookup;
//	              resumeAfter, startAfter, startAtOperationTime; 286 when the log was cut,
//	              280 for a token of what this file never had;
//	              updateDescription has the paths written to (package mql/query, Describe)
//	limits        16 MB a document, 48 MB a message, 100,000 statements, 64 indexes,
//	              10,000 cursors that hold 256 MB of results (Options.CursorBytes),
//	              100 MB a sort or group (292: none goes on on disk), 64 MB of change log
//	              before the newest batch of writes
//
// # What is refused
//
// Code 238 (NotImplemented) and the name of what MongoDB has and this server has
// not; what MongoDB does not know either gets MongoDB's own code.
//
//	commands      every other one (refusedCommands); fields of commands marked refused
//	distinct      where only MongoDB's planner knows whether a missing field counts as null
//	queries       $expr, $where, $text, geo, $jsonSchema, $natural, positional projection; Decimal128 arithmetic; collation
//	updates       pipelines
//	stages        $lookup and all others that package mql/query does not name
//	collections   capped, views, validators, time series, system.*
//	indexes       text, geo, hashed, wildcard, hidden, collation; making them in a transaction
//	streams       of everything, fullDocumentBeforeChange, expanded events, other stages behind $changeStream
//	reads         atClusterTime: a snapshot session has one read, a transaction reads at its beginning
//
// Read and write concerns and read preferences are accepted and ask for no more
// than is so anyway. There is no authentication: the server listens on loopback or
// a unix socket (a path that ends in .sock) unless told otherwise. A hint at a partial index that lacks some
// of the documents asked for is refused (2), where MongoDB leaves them out.
package embedded
