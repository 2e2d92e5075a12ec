package claim

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Terms returns what applies to a claim of the task: its effective options, and the options of its
// type and handler as [lifecycle.Claimant] keeps them. Without effective options the task is not to
// be claimed.
type Terms func(*model.Task) (*lifecycle.Effective, *model.Options)

// Room returns how many tasks of a type may be claimed. A nil Room allows any number.
type Room func(typ string) int

// rooms counts down what a [Room] allows, type by type.
type rooms struct {
	of   Room
	left map[string]int
}

func (r *rooms) free(typ string) bool {
	if r.of == nil {
		return true
	}
	if _, known := r.left[typ]; !known {
		if r.left == nil {
			r.left = map[string]int{}
		}
		r.left[typ] = r.of(typ)
	}
	return r.left[typ] > 0
}

func (r *rooms) use(typ string) {
	if r.of != nil {
		r.left[typ]--
	}
}

// question is what a decision about candidates depends on besides their documents.
type question struct {
	by      lifecycle.Claimant // its Applied and From are set for each task
	terms   Terms
	room    Room
	most    int // claims at most; 0 = any number
	limited func(*model.Task) bool
	granted map[*model.Task]limits.Grant
	now     time.Time
	behind  time.Duration // by how much now may lag, see [store.Stamp]
}

// vague reports whether a lease that counts from a time that may lag by so much is mostly over when it begins.
func vague(lease, behind time.Duration) bool { return behind > lease/2 }

// decision is what becomes of candidates.
type decision struct {
	claims, repairs []store.Write
	wrong           int                       // repairs of fields that contradict each other
	refused         map[*model.Task]time.Time // not for this worker before the time; zero = unknown
	unasked         bool                      // a limited task became claimable after grants were asked for
}

// decide says which candidates are claimed, repaired or refused. A task without room stays as it
// is, and so does one whose granted start has passed.
func (q question) decide(found []*model.Task) decision {
	d := decision{claims: make([]store.Write, 0, len(found))}
	room := rooms{of: q.room}
	for _, t := range found {
		if !room.free(t.Type) || q.most > 0 && len(d.claims) == q.most {
			continue
		}
		grant, granted := q.granted[t]
		eff, applied := q.terms(t)
		if eff == nil || grant.Late(q.now) {
			continue
		}
		by := q.by
		by.Applied, by.From = applied, grant.From
		after, no := lifecycle.Claim(t, by, *eff, q.now)
		if no == "" {
			if vague(eff.Lease, q.behind) {
				d.refuse(t, time.Time{}) // the database answers too slowly for its lease
				continue
			}
			if !granted && q.limited(t) {
				d.unasked = true
				continue
			}
			d.claims = append(d.claims, store.Write{Before: t, After: after})
			room.use(t.Type)
			continue
		}
		if fixed := lifecycle.Repair(t, *eff, q.now); no.Stale() && fixed != nil {
			d.repairs = append(d.repairs, store.Write{Before: t, After: fixed})
			if no != lifecycle.RefusedExpired {
				d.wrong++
			}
			continue
		}
		retry := time.Time{}
		switch no {
		case lifecycle.RefusedOwnRetry:
			retry = lifecycle.RetryOf(t, q.by.WorkerID)
		case lifecycle.RefusedNotDue:
			retry = t.DueAt
		case lifecycle.RefusedTwice:
			retry = q.now.Add(heldFor) // its execution may have ended since the task was read, and no query finds it before
		}
		d.refuse(t, retry)
	}
	return d
}

// refuse leaves a task to others until the time.
func (d *decision) refuse(t *model.Task, until time.Time) {
	if d.refused == nil {
		d.refused = map[*model.Task]time.Time{}
	}
	d.refused[t] = until
}
