// Package workerevent names the kinds of events of a consumer: the values of Kind of consumer.Event,
// which says what they mean. Callers only read them, so they are not exported.
package workerevent

// The kinds, see Kind of consumer.Event.
const (
	Claimed   = "claimed"
	TakenOver = "taken_over"
	Started   = "started"
	Finished  = "finished"
	Parked    = "parked"
	Fenced    = "fenced"
	LeaseLost = "lease_lost"
	Cancelled = "cancelled"
	Lapsed    = "lapsed"
	Outage    = "outage"
	Restored  = "restored"
	Stream    = "stream"
)
