package finish

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// deniedPatience is how long ends are tried again that the server refuses whatever they
// say, if the lease is not longer.
const deniedPatience = 30 * time.Second

// deny notes that the server refused a command, and with it the ends that are not known to be written.
func (w *Ends) deny(batch []*End, written []store.Written, err error) []store.Written {
	now := w.Clock.Monotonic()
	for i, e := range batch {
		if written[i].Applied {
			continue
		}
		if e.denied == 0 {
			e.denied = max(now, 1)
			w.warn(e, err)
		}
		written[i].Current = e.newest()
		if now-e.denied > max(e.Options.Lease, deniedPatience) {
			written[i].Refused = err
		}
	}
	return written
}

// mayPass says whether a refusal of just this end is met again before its result is given
// up: one that is not known to be about the document, but perhaps about a release of the
// server that is newer than this code, for as long as a lease.
func (w *Ends) mayPass(e *End, why error) bool {
	if store.OfDocument(why) {
		return false
	}
	now := w.Clock.Monotonic()
	if e.doubted == 0 {
		e.doubted = max(now, 1)
		w.warn(e, why)
	}
	return now-e.doubted <= e.Options.Lease
}

func (w *Ends) warn(e *End, why error) {
	e.about(w.Log.Error().Err(why)).Msg("the database refused the end of an execution; retrying")
}

// shorten replaces what the server will never take, such as a result that is too large
// together with the rest of the document: the task ends all the same, as Failure, and says
// so. A second time it says as little as it can; false when there is nothing less to say.
func (e *End) shorten(why error) bool {
	e.refused++
	kind := e.Out.Kind
	switch {
	case kind == failkind.Released || kind == failkind.Undecodable:
		return false // a failure would be more than it was
	case e.refused == 1 && (kind == "" || !e.ParkUntil.IsZero()):
		e.Out = lifecycle.Failed(failkind.Fatal, "the result cannot be stored: "+why.Error())
	case e.refused <= 2:
		e.Out = lifecycle.Failed(failkind.Fatal, "its end cannot be stored")
		e.refused = 2
	default:
		return false
	}
	e.ParkUntil = time.Time{}
	return true
}
