package scalemodel

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Sizes are the fleets of docs/scale.md: a week's retention fills the collection of each.
func Sizes() []Fleet {
	f := Fleet{Workers: 10, Stored: 1_000_000, Waiting: 10_000, PerSecond: 1.6, Takes: 30 * time.Second, ArgsBytes: 200, Cores: 16, Subscriptions: 2}
	all := []Fleet{f}
	for range 2 {
		f.Workers, f.Stored, f.Waiting, f.PerSecond = 10*f.Workers, 10*f.Stored, 10*f.Waiting, 10*f.PerSecond
		all = append(all, f)
	}
	return all
}

// Row is one line of a table: its name, and a cell for each estimate.
type Row struct {
	Name  string
	Cells []string
}

// Table shows estimates side by side.
func Table(all []Estimate) (rows []Row) {
	row := func(name string, cell func(e *Estimate) string) {
		r := Row{Name: name}
		for i := range all {
			r.Cells = append(r.Cells, cell(&all[i]))
		}
		rows = append(rows, r)
	}
	row("workers", func(e *Estimate) string { return count(float64(e.Workers)) })
	row("tasks stored", func(e *Estimate) string { return count(float64(e.Stored)) })
	row("waiting, executing", func(e *Estimate) string {
		return count(float64(e.Waiting)) + ", " + count(e.Executing)
	})
	row("tasks/s, so retention", func(e *Estimate) string { return count(e.PerSecond) + ", " + days(e.Retention) })
	row("document: waiting, ended", func(e *Estimate) string { return fmt.Sprintf("%d B, %d B", e.WaitingBytes, e.EndedBytes) })
	row("documents, their B-tree", func(e *Estimate) string { return size(e.DataBytes) + ", depth " + strconv.Itoa(e.DataDepth) })
	for _, name := range []string{"_id", "due", "lapse", "archive"} {
		row("index "+name, func(e *Estimate) string {
			for _, ix := range e.Indexes {
				if ix.Name == name {
					return size(ix.Bytes) + ", depth " + strconv.Itoa(ix.Depth)
				}
			}
			return "-"
		})
	}
	row("memory: generated keys, random keys", func(e *Estimate) string { return size(e.HotBytes) + ", " + size(e.HotOwnKeys) })
	row("commands/s: idle, busy", func(e *Estimate) string { return count(e.Idle.All()) + ", " + count(e.Busy.All()) })
	row("of these: polls, scans, pings", func(e *Estimate) string {
		return count(e.Busy.Polls) + ", " + count(e.Busy.Scans) + ", " + count(e.Busy.Pings)
	})
	row("leases extended/s", func(e *Estimate) string { return count(e.Pinged) })
	row("oplog", func(e *Estimate) string { return count(e.OplogEntries) + " entries/s, " + size(e.OplogBytes) + "/s" })
	row("change streams, entries they read", func(e *Estimate) string {
		return fmt.Sprintf("%d, %s/s", e.Streams, count(e.Events))
	})
	row("server cores: idle fleet, this load", func(e *Estimate) string {
		return fmt.Sprintf("%.3f, %.2f", e.IdleCores, e.BusyCores)
	})
	row("backlog: claims tried for each won", func(e *Estimate) string { return fmt.Sprintf("%.2f", e.Tried) })
	row("backlog: index keys for each task", func(e *Estimate) string { return fmt.Sprintf("%.1f", e.Keys) })
	row("one server full: one by one, in batches", func(e *Estimate) string {
		return count(e.FullSingle) + "/s, " + count(e.FullBatches) + "/s"
	})
	row("each shard adds, in batches", func(e *Estimate) string { return count(e.FullShard) + "/s" })
	return rows
}

// count shows three digits of a number.
func count(n float64) string {
	if n < 100 {
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
	digits := 1.0
	for n/digits >= 1000 {
		digits *= 10
	}
	whole := strconv.Itoa(int(n/digits+0.5) * int(digits))
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	return whole
}

func size(bytes float64) string {
	for _, unit := range []string{"B", "KB", "MB"} {
		if bytes < 1000 {
			return strings.TrimSuffix(strconv.FormatFloat(bytes, 'f', 1, 64), ".0") + " " + unit
		}
		bytes /= 1000
	}
	return strconv.FormatFloat(bytes, 'f', 1, 64) + " GB"
}

func days(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Minute).String()
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}
