// Package proxy is a broken network for tests, and a slow one for mscheduler bench. It
// stands between MongoDB clients and a server, understands where a command begins and
// ends, and does to chosen ones what networks do.
//
//	client ──▶ proxy ──▶ server
//	            │  Trap: cut before the server saw it, cut when its answer came, hold either, refuse
//	            ├─ Patient: no command runs out of its time
//	            └─ Cut, Mend: nobody gets through; Drop: every connection breaks once
//
// A trap names its commands by name, collection and content, and the how-manieth of
// them it wants. Every trap has a channel that tells when it was sprung, so that tests
// wait for the event instead of sleeping.
package proxy
