// Package calendar says at which instants a cron rule fires in a time zone. It is pure:
// no clock, no I/O; the time zones are in it (zone.go).
//
//	"30 2 * * *" ──Parse──▶ field masks ──walk──▶ wall-clock times ──zone──▶ instants
//
// The parser is robfig/cron's, behind checks of our own (fields.go), which name the field
// that is wrong. They know what the library does not: Sunday as the seventh day, steps that lead out of a field, and
// */2 among the days, which is a star for cron and a list for the library. The walk is our own, because cron's Next
// goes wrong where a zone shifts by half an hour (Lord Howe) or at midnight (Cairo). It goes
// through the spans in which a zone's offset stays the same. Inside one, wall-clock time
// runs as steadily as time itself, and a matching wall-clock time is an instant. Between
// two, either some wall-clock times do not exist (a gap) or some come twice (a fold), and
// the rule's policy says what becomes of those.
package calendar
