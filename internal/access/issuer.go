package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Bounds of a mapping and of what a token says about its holder.
const (
	maxRoleValues = 1000
	maxSubject    = 255 // bytes, as OpenID Connect has it
	maxHolder     = 100 // bytes of a name for people
)

// everyTenantOf is the value of the tenants' claim that stands for all tenants. No tenant has that name.
const everyTenantOf = "*"

// algorithms are the signatures that are accepted: those of key pairs. With a shared secret, whoever can
// verify a token could make one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

var (
	// ErrNoRights is returned for a right token of an issuer whose claims give it no role or no tenant.
	ErrNoRights = errors.New("the token gives no access")
	// ErrNoKeys is returned while the keys of the issuer cannot be read. It says nothing about the token.
	ErrNoKeys = errors.New("the keys of the issuer cannot be read")
)

// Issuer is an identity provider (OpenID Connect) whose signed tokens (JWT) are accepted beside those of the
// database. All fields but the two last are required. server.Issuer is the same for users.
type Issuer struct {
	// URL is the claim iss of its tokens.
	URL string
	// JWKS is where its public keys are: an https URL, http for a loopback address, or a file.
	JWKS string
	// Audience is what the claim aud of a token must contain, such as the client id of this deployment.
	Audience string
	// Roles maps values of the role claim to viewer, operator, admin and worker. A token with several roles
	// has the first of admin, operator, viewer and worker. One without any is refused.
	Roles map[string]string
	// RoleClaim is a string or a list of strings. Its name may be a path such as realm_access.roles.
	// Defaults to roles.
	RoleClaim string
	// TenantsClaim lists the tenants that the token covers: * is all of them, - is what has no tenant. A
	// token without it is refused. Defaults to none: each token covers all tenants.
	TenantsClaim string
}

// Check finds everything that is wrong with the configuration. Each error names the field and is
// model.ErrInvalid.
func (i Issuer) Check() error {
	var errs []error
	for field, value := range map[string]string{"issuer.url": i.URL, "issuer.jwks": i.JWKS, "issuer.audience": i.Audience} {
		if value == "" {
			errs = append(errs, input.Invalid(field, "is required"))
		}
	}
	if u, remote := i.remote(); remote && (u == nil || u.Scheme == "http" && !isLoopback(u.Hostname())) {
		errs = append(errs, input.Invalid("issuer.jwks", "is %q; want an https URL, an http URL of a loopback address, or a file", safetext.URL(i.JWKS)))
	}
	if len(i.Roles) == 0 || len(i.Roles) > maxRoleValues {
		errs = append(errs, input.Invalid("issuer.roles", "has %d values; want 1 to %d", len(i.Roles), maxRoleValues))
	}
	for value, role := range i.Roles {
		if value == "" {
			errs = append(errs, input.Invalid("issuer.roles", "maps an empty value"))
		}
		_, err := ParseRole("issuer.roles", role)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// remote is the URL of the keys; false if they are in a file. A URL that cannot be read is nil.
func (i Issuer) remote() (*url.URL, bool) {
	if !strings.HasPrefix(i.JWKS, "https://") && !strings.HasPrefix(i.JWKS, "http://") {
		return nil, false
	}
	u, err := url.Parse(i.JWKS)
	if err != nil || u.Hostname() == "" {
		return nil, true
	}
	return u, true
}

// issuer checks the tokens of an [Issuer].
type issuer struct {
	Issuer
	log  zerolog.Logger
	keys *keyring
	now  func() time.Time
}

func newIssuer(i Issuer, c clock.Clock, now func() time.Time, log zerolog.Logger) *issuer {
	i.RoleClaim, i.Roles = cmp.Or(i.RoleClaim, "roles"), maps.Clone(i.Roles)
	_, remote := i.remote()
	return &issuer{Issuer: i, log: log, keys: newKeyring(i.JWKS, remote, c, now, log), now: now}
}

// check returns what a signed token allows. patient lets it read keys that the process does not know.
//
// The errors are [ErrNoToken], [ErrExpired], [ErrNoRights], [ErrNoKeys], and the cause of ctx.
func (i *issuer) check(ctx context.Context, text string, patient bool) (Grant, error) {
	signed, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil {
		return Grant{}, i.wrong(err)
	}
	keys, err := i.keys.of(ctx, signed.Signatures[0].Header, patient)
	if err != nil {
		return Grant{}, err
	}
	config := &oidc.Config{ClientID: i.Audience, Now: i.now}
	for _, a := range algorithms {
		config.SupportedSigningAlgs = append(config.SupportedSigningAlgs, string(a))
	}
	token, err := oidc.NewVerifier(i.URL, &oidc.StaticKeySet{PublicKeys: keys}, config).Verify(ctx, text)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return Grant{}, ErrExpired
	case err != nil:
		return Grant{}, i.wrong(err)
	case token.Subject == "" || len(token.Subject) > maxSubject || input.Line("sub", token.Subject) != nil:
		return Grant{}, i.wrong(errors.New("the claim sub is missing, too long or no line of text"))
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Grant{}, i.wrong(err)
	}
	return i.grant(token.Subject, claims)
}

// wrong is the error of a token that is not valid. Only the log of this server says why.
func (i *issuer) wrong(err error) error {
	i.log.Debug().Err(err).Msg("a token of the issuer is not valid")
	return ErrNoToken
}

// grant is what the claims of a valid token allow.
func (i *issuer) grant(subject string, claims map[string]any) (Grant, error) {
	g := Grant{Subject: subject}
	for _, field := range []string{"preferred_username", "email", "name"} {
		if name, _ := claims[field].(string); name != "" && g.Name == "" {
			g.Name = safetext.Clip(name, maxHolder)
		}
	}
	has := map[Role]bool{}
	for _, value := range textsOf(claims, i.RoleClaim) {
		has[Role(i.Roles[value])] = true
	}
	order := []Role{Admin, Operator, Viewer, Worker}
	best := slices.IndexFunc(order, func(r Role) bool { return has[r] })
	if best < 0 {
		return Grant{}, fmt.Errorf("%w: its claim %s names no role", ErrNoRights, i.RoleClaim)
	}
	g.Role = order[best]
	if i.TenantsClaim == "" {
		return g, nil
	}
	named := textsOf(claims, i.TenantsClaim)
	if slices.Contains(named, everyTenantOf) {
		return g, nil
	}
	named = slices.DeleteFunc(named, func(t string) bool { return input.Name("tenant", t) != nil })
	slices.Sort(named)
	if g.Tenants = slices.Compact(named); len(g.Tenants) == 0 || len(g.Tenants) > maxTenants {
		return Grant{}, fmt.Errorf("%w: its claim %s names %d tenants; want 1 to %d, or %s", ErrNoRights, i.TenantsClaim, len(g.Tenants), maxTenants, everyTenantOf)
	}
	return g, nil
}

// textsOf are the texts of a claim: one, or a list. The claim of exactly that name comes first, since names
// such as https://example.org/roles have dots. Otherwise dots lead into objects.
func textsOf(claims map[string]any, name string) (texts []string) {
	value, there := claims[name]
	if !there {
		value = claims
		for _, part := range strings.Split(name, ".") {
			inner, _ := value.(map[string]any)
			value = inner[part]
		}
	}
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		for _, v := range value {
			if text, is := v.(string); is {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
