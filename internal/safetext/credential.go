package safetext

import (
	"net/textproto"
	"slices"
)

// secretHeaders are those of a call whose values are credentials.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"}

// IsCredential says whether a header of that name is a credential.
func IsCredential(name string) bool {
	return slices.Contains(secretHeaders, textproto.CanonicalMIMEHeaderKey(name))
}
