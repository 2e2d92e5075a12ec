package scalemodel

import "time"

// Measured costs of a MongoDB 5.0.7 on two cores, in processor time of the server. docs/performance.md
// has the measurements, but for those of the streams, which internal/store/seats.go has.
const (
	findCost   = 80 * time.Microsecond // a command that finds or writes one document
	foundCost  = 8 * time.Microsecond  // for each task that a find returns
	keyCost    = 2500 * time.Nanosecond
	claimCost  = 42 * time.Microsecond // of a task, 1,000 in a command; its end costs as much
	lostCost   = 15 * time.Microsecond // of a claim that somebody else won
	insertCost = 75 * time.Microsecond // of a task, 1,000 in a command
	// archiveCost is that of the copy to the history and the deletion.
	archiveCost = 107 * time.Microsecond
	// singleCost is that of an update of one task in a command of its own.
	singleCost = 100 * time.Microsecond
	// eventCost is what each open change stream costs for each write.
	eventCost = 10 * time.Microsecond
	// oplogEntry is what an entry of the oplog has beside the document or the update, in bytes.
	oplogEntry = 200
	// shardShare is the rate of two shards on the same cores, as a share of a replica set's.
	shardShare = 0.36
	// full is the share of a server's cores that a fleet should use at most.
	full = 0.7
)

// serverCost is for how long a command of a crowd keeps a core busy.
func serverCost(c Command) time.Duration {
	n := time.Duration(c.Tasks)
	switch c.Kind {
	case Find:
		return findCost + n*foundCost + max(0, time.Duration(c.Keys)-n)*keyCost
	case Claim:
		lost := time.Duration(c.Lost)
		return findCost + (n-lost)*claimCost + lost*lostCost
	default:
		return findCost + n*claimCost
	}
}
