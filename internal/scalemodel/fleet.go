package scalemodel

import (
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Fleet is a deployment to estimate.
type Fleet struct {
	Workers   int           `json:"workers"`        // processes, each with 100 slots
	Stored    int           `json:"stored"`         // tasks in the collection tasks, ended ones included
	Waiting   int           `json:"waiting"`        // of them, due or later
	PerSecond float64       `json:"tasks_a_second"` // sent and ended
	Takes     time.Duration `json:"-"`              // how long a handler runs
	ArgsBytes int           `json:"args_bytes"`
	Cores     int           `json:"cores"` // of the server
	// Subscriptions are change streams beside those of workers: dashboards, Subscribe.
	Subscriptions int `json:"subscriptions"`
}

// Index is one index of the collection tasks.
type Index struct {
	Name  string  `json:"name"`
	Keys  float64 `json:"keys"`
	Bytes float64 `json:"bytes"`
	Depth int     `json:"depth"`
}

// Estimate is what the model says of a fleet.
type Estimate struct {
	Fleet
	TakesMS     int64         `json:"takes_ms"`
	Executing   float64       `json:"executing"`
	Retention   time.Duration `json:"-"` // how long an ended task stays, for so many to be stored
	RetentionMS int64         `json:"retention_ms"`

	WaitingBytes int     `json:"waiting_bytes"` // of a document
	EndedBytes   int     `json:"ended_bytes"`
	DataBytes    float64 `json:"data_bytes"`
	DataDepth    int     `json:"data_depth"`
	Indexes      []Index `json:"indexes"`
	IndexBytes   float64 `json:"index_bytes"`
	// HotBytes are those that must lie in memory: what waits and executes, its keys, and what ended
	// within the last minute. HotOwnKeys is the same with keys that callers choose at random: each
	// insert reads another page of the index of _id.
	HotBytes   float64 `json:"hot_bytes"`
	HotOwnKeys float64 `json:"hot_bytes_with_random_keys"`

	Idle   Rates   `json:"idle_commands_a_second"`
	Busy   Rates   `json:"busy_commands_a_second"`
	Pinged float64 `json:"leases_extended_a_second"`

	OplogEntries float64 `json:"oplog_entries_a_second"`
	OplogBytes   float64 `json:"oplog_bytes_a_second"`
	Streams      int     `json:"streams"`
	Events       float64 `json:"events_looked_at_a_second"` // of the oplog, by all streams together

	IdleCores float64 `json:"idle_cores"`
	BusyCores float64 `json:"busy_cores"`
	// FullSingle and FullBatches are how many tasks a second fill the server, where they come one by
	// one, and where they come in batches. FullShard is what each shard of a cluster adds.
	FullSingle  float64 `json:"full_single"`
	FullBatches float64 `json:"full_batches"`
	FullShard   float64 `json:"full_shard"`

	// Of a backlog that the whole fleet drains: claims tried for each won, index keys and finds for
	// each task, and tasks a second.
	Tried   float64 `json:"claims_tried_for_each_won"`
	Keys    float64 `json:"index_keys_for_each_task"`
	Drained float64 `json:"drained_a_second"`
}

// slots of a worker.
const slots = 100

// What is simulated of a backlog.
const (
	backlogEach  = 300 // tasks for each worker,
	leastBacklog = 100_000
	crowdSeed    = 7
)

// mostSubscriptions is how many a fleet has: half of the seats of all streams, as store.Seats gives them.
const mostSubscriptions = store.StreamsInAll / 2

const longestTakes = 7 * 24 * time.Hour

// Validate says everything that is wrong with a fleet.
func (f *Fleet) Validate() error {
	var errs []error
	for _, x := range []struct {
		name           string
		n, least, most float64
	}{
		{"--workers", float64(f.Workers), 1, 10_000},
		{"--stored", float64(f.Stored), 1, 1e12},
		{"--waiting", float64(f.Waiting), 0, float64(f.Stored)},
		{"--rate", f.PerSecond, 1e-6, 1e6},
		{"--args-bytes", float64(f.ArgsBytes), 0, input.MaxArgsBytes / 2},
		{"--cores", float64(f.Cores), 1, 1000},
		{"--subscriptions", float64(f.Subscriptions), 0, mostSubscriptions},
	} {
		if !(x.n >= x.least && x.n <= x.most) { // nor is NaN a rate
			errs = append(errs, input.Invalid(x.name, "is %v; want %v to %v", x.n, x.least, x.most))
		}
	}
	if f.Takes < 0 || f.Takes > longestTakes {
		errs = append(errs, input.Invalid("--takes", "is %v; want up to %v", f.Takes, longestTakes))
	}
	if executing := f.PerSecond * f.Takes.Seconds(); len(errs) == 0 && executing+float64(f.Waiting) > float64(f.Stored) {
		errs = append(errs, input.Invalid("--stored", "is %d, fewer than wait and execute (%d and %.0f)", f.Stored, f.Waiting, executing))
	}
	return errors.Join(errs...)
}

// Of estimates a valid fleet.
func Of(f Fleet) (Estimate, error) {
	life, err := NewLife("order.confirm", f.ArgsBytes)
	if err != nil {
		return Estimate{}, err
	}
	e := Estimate{Fleet: f, Executing: f.PerSecond * f.Takes.Seconds(), WaitingBytes: len(life.Waiting), EndedBytes: len(life.Ended)}
	ended := float64(f.Stored-f.Waiting) - e.Executing
	e.Retention = time.Duration(min(ended/f.PerSecond, 1e9) * float64(time.Second))
	e.TakesMS, e.RetentionMS = f.Takes.Milliseconds(), e.Retention.Milliseconds()
	e.size(life, ended)
	e.send()
	e.write(life)
	e.spend()
	return e, e.drain()
}

// size sets how large documents and indexes are.
func (e *Estimate) size(life Life, ended float64) {
	byName := map[string]*Index{}
	keyBytes := map[string]float64{}
	for _, ix := range store.Indexes("tasks") {
		byName[ix.Name] = &Index{Name: ix.Name, Depth: 1}
	}
	for _, s := range []struct {
		doc []byte
		n   float64
		hot bool
	}{{life.Waiting, float64(e.Waiting), true}, {life.Running, e.Executing, true}, {life.Ended, ended, false}} {
		e.DataBytes += s.n * float64(len(s.doc))
		hot := 0.0
		for _, k := range KeysOf(s.doc) {
			ix := byName[k.Index]
			ix.Keys += s.n * float64(k.Count)
			ix.Bytes += s.n * float64(k.Bytes)
			keyBytes[k.Index] = float64(k.Bytes) / float64(k.Count)
			hot += float64(k.Bytes)
		}
		n := s.n
		if !s.hot {
			n = min(n, e.PerSecond*60)
		}
		e.HotBytes += n * (float64(len(s.doc)) + hot)
	}
	e.DataDepth = Depth(e.DataBytes, docPage, 8)
	for _, ix := range store.Indexes("tasks") {
		one := byName[ix.Name]
		if one.Keys == 0 {
			continue
		}
		one.Depth = Depth(one.Bytes, indexPage, int(keyBytes[ix.Name]))
		e.Indexes, e.IndexBytes = append(e.Indexes, *one), e.IndexBytes+one.Bytes
	}
	e.HotOwnKeys = e.HotBytes + byName["_id"].Bytes
}

// send sets what the workers send.
func (e *Estimate) send() {
	e.Idle, e.Busy = Idle(e.Workers), Busy(e.Workers, e.PerSecond, e.Takes)
	e.Pinged = Pinged(e.PerSecond, e.Takes)
}

// write sets what the oplog gets of each task: its insert, claim, end, copy and deletion, and pings.
func (e *Estimate) write(life Life) {
	e.OplogEntries = 5*e.PerSecond + e.Pinged
	e.OplogBytes = e.PerSecond*float64(len(life.Waiting)+len(life.Claim)+len(life.End)+len(life.Ended)) + e.OplogEntries*oplogEntry
	e.Streams = min(e.Workers, store.StreamsPerTypes) + e.Subscriptions
	e.Events = e.OplogEntries * float64(e.Streams)
}

// spend sets the processor time of the server.
func (e *Estimate) spend() {
	overhead := func(r Rates) float64 { // a count of the workers finds each of them
		return (r.All()-r.Tasks)*findCost.Seconds() + r.Counts*float64(e.Workers)*foundCost.Seconds()
	}
	e.IdleCores = overhead(e.Idle)
	fixed := overhead(e.Busy)
	stream := 5 * eventCost.Seconds() * float64(e.Streams) // of a task
	single := 3*singleCost.Seconds() + findCost.Seconds() + archiveCost.Seconds() + stream
	batch := (insertCost + foundCost + 2*claimCost + archiveCost).Seconds() + stream
	pinged := e.Pinged * claimCost.Seconds()
	e.BusyCores = fixed + pinged + e.PerSecond*single
	free := max(0, full*float64(e.Cores)-fixed-pinged)
	e.FullSingle, e.FullBatches = free/single, free/batch
	e.FullShard = shardShare * free / batch
}

// drain simulates a backlog.
func (e *Estimate) drain() error {
	n := max(backlogEach*e.Workers, leastBacklog)
	c := NewCrowd(e.Workers, n, slots, time.Minute, crowdSeed)
	c.Cores, c.Cost = e.Cores, serverCost
	if err := c.Run(); err != nil {
		return err
	}
	e.Tried, e.Keys = float64(c.Tried)/float64(n), float64(c.Keys)/float64(n)
	e.Drained = float64(n) / (c.Now - time.Minute).Seconds()
	return nil
}
