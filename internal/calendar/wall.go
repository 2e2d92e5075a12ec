package calendar

import "time"

// WallOf is what the clocks of the zone show at an instant, as if it were UTC.
func WallOf(at time.Time, zone *time.Location) time.Time {
	_, offset := at.In(zone).Zone()
	return wall(at, offset)
}

// InstantOf is the instant, in UTC, at which the clocks of the zone show a wall-clock time, which is
// given as if it were UTC. Of a time in a gap it is the instant at which the gap ends. Of a time that
// comes twice it is the first. So a later wall-clock time is never at an earlier instant.
func InstantOf(w time.Time, zone *time.Location) time.Time {
	for s := spanAt(w.UTC().Add(-day), zone); ; s = spanAt(s.end, zone) {
		at := wall(w, -s.offset)
		switch {
		case at.Before(s.start):
			return s.start
		case s.end.IsZero() || at.Before(s.end):
			return at
		}
	}
}
