package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// usage is what a server has used since it started.
type usage struct {
	cpu        time.Duration
	cpuErr     error // why cpu is unknown
	keys, docs int64 // examined by queries and updates
	counts     bool  // whether the server reports keys and docs
}

// serverStatus holds the fields of MongoDB's serverStatus that a bench reads.
type serverStatus struct {
	PID     int64  `bson:"pid"`
	Process string `bson:"process"` // "mongod" or "mongos", perhaps with its path
	Uptime  int64  `bson:"uptimeMillis"`
	Metrics struct {
		QueryExecutor struct {
			Scanned        *int64 `bson:"scanned"`
			ScannedObjects int64  `bson:"scannedObjects"`
		} `bson:"queryExecutor"`
	} `bson:"metrics"`
}

// serverUsage reads what the server has used so far. The embedded server of this process
// cannot be told from workers that run here, too.
func (r *run) serverUsage(ctx context.Context) (u usage) {
	var s serverStatus
	err := r.db.Client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&s)
	if q := s.Metrics.QueryExecutor; err == nil && q.Scanned != nil {
		u.keys, u.docs, u.counts = *q.Scanned, q.ScannedObjects, true
	}
	switch {
	case r.db.Embedded() && !r.here:
		u.cpu = cpuTime()
	case r.db.Embedded():
		u.cpuErr = errors.New("the workers run in the server's process")
	case err != nil:
		u.cpuErr = fmt.Errorf("asking the server for its process: %w", err)
	case filepath.Base(s.Process) == "mongos":
		u.cpuErr = errors.New("a sharded cluster has several servers")
	default:
		u.cpu, u.cpuErr = processTime(s)
	}
	return u
}

// usedBy sets what the server used between two looks for the result's tasks.
func (r *run) usedBy(before, after usage) {
	if r.res.Tasks == 0 {
		return
	}
	tasks := float64(r.res.Tasks)
	if err := errors.Join(before.cpuErr, after.cpuErr); err == nil {
		r.res.ServerCPU = (&spent{tasks: r.res.Tasks, cpu: after.cpu - before.cpu}).cpuEach()
	} else {
		r.note("processor time of the server: unknown: %v", before.cpuErr)
	}
	if before.counts && after.counts {
		r.res.KeysExamined = quotient(ptr(float64(after.keys-before.keys)), &tasks)
		r.res.DocsExamined = quotient(ptr(float64(after.docs-before.docs)), &tasks)
	}
}
