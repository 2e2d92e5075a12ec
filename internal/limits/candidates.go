package limits

import (
	"cmp"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// candidates are the next tasks of one type that this process has found but could not claim
// without a permit. A permit that becomes free goes straight to one of them, without a search.
// Only ids are kept, and a candidate is read again before its claim. The rules are pure.
type candidates struct {
	list     []candidate   // best first
	searched time.Duration // monotonic: when the list was last searched for
	more     bool          // there may be others
	window   int           // the process chooses among so many at the head, see [candidates.take]
	gone     int           // how many of the last that were read had been claimed by others

	searching bool          // a search is under way
	wishCheck time.Duration // monotonic: when this process last looked whether another waits
	wishes    int           // of this process for a permit, since it last had one
	spared    time.Duration // monotonic: when an execution last got no successor, so that its end looks
}

type candidate struct {
	id       string
	priority int
	named    bool // it names this worker
	due      time.Time
}

func (k candidate) compare(o candidate) int {
	switch {
	case k.priority != o.priority:
		return cmp.Compare(o.priority, k.priority)
	case k.named != o.named:
		if k.named {
			return -1
		}
		return 1
	default:
		return k.due.Compare(o.due)
	}
}

const (
	// MostCandidates bounds what a process remembers of a type, and what a search reads.
	MostCandidates = 256
	// candidatesFresh is how long a list is used without a new search beside.
	candidatesFresh = time.Second
	// candidatesKept is how long a list is used at all, if searches fail or none was needed.
	candidatesKept = 5 * time.Second
	// fewCandidates is the length at which a new search begins before that.
	fewCandidates = 32
	// widestChoice bounds the window.
	widestChoice = 64
	// spareCandidates bounds how many more are read than can be claimed.
	spareCandidates = 8
)

// add records tasks, the best of all known first.
func (c *candidates) add(tasks []*model.Task) {
	known := make(map[string]bool, len(c.list))
	for _, k := range c.list {
		known[k.id] = true
	}
	for _, t := range tasks {
		if !known[t.ID] {
			known[t.ID] = true
			c.list = append(c.list, candidate{t.ID, t.Priority, len(t.Options.SpecificWorkerIDs) > 0, t.DueAt})
		}
	}
	slices.SortStableFunc(c.list, candidate.compare)
	if len(c.list) > MostCandidates {
		c.list, c.more = c.list[:MostCandidates], true
	}
}

// learn takes in tasks that were found beside others.
func (c *candidates) learn(tasks []*model.Task, now time.Duration) {
	if !c.usable(now) {
		c.list, c.more, c.searched = nil, true, now-candidatesFresh // a search is wanted
	}
	c.add(tasks)
}

// replace replaces the list with the result of a search.
func (c *candidates) replace(tasks []*model.Task, more bool, now time.Duration) {
	c.list, c.more, c.searched = nil, more, now
	c.add(tasks)
}

// usable reports whether a permit may pass on to one of these, or to one that a search finds.
func (c *candidates) usable(now time.Duration) bool {
	return (len(c.list) > 0 || c.more) && now-c.searched <= candidatesKept
}

// wanted reports whether a search is worthwhile now.
func (c *candidates) wanted(now time.Duration) bool {
	return !c.searching && c.usable(now) && (now-c.searched >= candidatesFresh || c.more && len(c.list) < fewCandidates)
}

// take removes candidates for n claims from the list, and some more if other processes have been
// quicker lately. Processes see the same head, so one that loses candidates begins at random
// within a window. It never passes over a greater priority, nor over a task that names this worker.
func (c *candidates) take(n int, intN func(int) int) (ids []string) {
	if n <= 0 || len(c.list) == 0 {
		return nil
	}
	same := 1
	for same < len(c.list) && c.list[same].priority == c.list[0].priority && c.list[same].named == c.list[0].named {
		same++
	}
	from := 0
	if window := min(c.window, same-n+1); window > 1 {
		from = intN(window)
	}
	to := min(len(c.list), from+n+min(c.gone, spareCandidates))
	for _, k := range c.list[from:to] {
		ids = append(ids, k.id)
	}
	c.list = slices.Delete(c.list, from, to)
	return ids
}

// adapt learns from the last choice: others claimed gone tasks before they were read, and lost
// tasks after that.
func (c *candidates) adapt(gone, lost int) {
	c.gone = max(gone, c.gone-1)
	if gone+lost > 0 {
		c.window = min(2*c.window+2, widestChoice)
	} else {
		c.window = max(c.window-1, 0)
	}
}
