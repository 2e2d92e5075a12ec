// Package access decides who may use the REST API: by tokens with a role, tenants and an expiry.
//
//	token's text ──▶ Guard.Check ──▶ Grant: who it is, its role, its tenants
//	                   │
//	                   ├ the process's view of the tokens, at most 5 s old
//	                   └ the limiter of failed sign-ins
//
//	text.go     the written form of a token, and what is stored of it
//	role.go     roles and grants: what a token allows
//	create.go   tokens are created and revoked
//	guard.go    checks of tokens, and the view
//	limiter.go  how often an address may fail
//
// The package knows nothing of HTTP. What each operation needs is the server's to say; the documents
// are those of store.Tokens.
package access
