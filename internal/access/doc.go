// Package access decides who may use the REST API: by tokens of the database with a role, tenants and an expiry,
// and by signed tokens of an identity provider whose claims say the same.
//
//	token's text ──▶ Guard.Check ──▶ Grant: who it is, its role, its tenants
//	                   │
//	                   ├ the process's view of the tokens, at most 5 s old
//	                   ├ the issuer: its keys, and what its claims mean
//	                   └ the limiter of failed sign-ins
//
//	text.go     the written form of a token, and what is stored of it
//	role.go     roles and grants: what a token allows
//	create.go   tokens are created and revoked
//	guard.go    checks of tokens, and the view
//	issuer.go   tokens of an identity provider
//	keyring.go  the provider's public keys
//	limiter.go  how often an address may fail
//
// The package does not see requests. What each operation needs is the server's to say; the documents
// are those of store.Tokens.
package access
