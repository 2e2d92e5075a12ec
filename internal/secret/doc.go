// Package secret keeps secrets unreadable in the database.
//
//	box.go       keys from text; seal and open one text (AES-256-GCM)
//	callback.go  the secrets of a callback, and of other signed calls: sealed before anything
//	             is written, kept where a change does not give them, opened by who signs
//	headers.go   those of a call's headers
//	args.go      those of headers and of the URL among a task's arguments, which are stored as they are
//	hide.go      hidden from everybody else
//
// A sealed text is "mss1.<key id>.<base64url of nonce and ciphertext>". The key id is a hash
// of the key, so that of several keys the right one is found at once, and a missing one is
// named. A secret is bound to its access key: under another one it does not open.
package secret
