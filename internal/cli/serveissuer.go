package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/server"
)

// issuerFlags name an identity provider whose tokens the API accepts.
type issuerFlags struct {
	url, jwks, audience, roleClaim, tenantsClaim string
	roles                                        []string
}

func (f *issuerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "oidc-issuer", "", "identity provider whose tokens are accepted: the claim iss, such as https://id.example.org; defaults to none (MSCHEDULER_OIDC_ISSUER)")
	flags.StringVar(&f.jwks, "oidc-jwks", "", "https URL or file of the provider's public keys, a JSON Web Key Set (MSCHEDULER_OIDC_JWKS)")
	flags.StringVar(&f.audience, "oidc-audience", "", "audience that a token must name in the claim aud, such as a client id (MSCHEDULER_OIDC_AUDIENCE)")
	flags.StringSliceVar(&f.roles, "oidc-roles", nil, "roles by values of the role claim, such as admin=platform,operator=oncall (MSCHEDULER_OIDC_ROLES)")
	flags.StringVar(&f.roleClaim, "oidc-role-claim", "", "claim with the values of --oidc-roles, such as realm_access.roles; defaults to roles (MSCHEDULER_OIDC_ROLE_CLAIM)")
	flags.StringVar(&f.tenantsClaim, "oidc-tenants-claim", "", "claim with the tenants of a token, * for all; defaults to none: every token covers all tenants (MSCHEDULER_OIDC_TENANTS_CLAIM)")
}

// issuer checks the flags and their variables; nil = no provider.
func (f *issuerFlags) issuer(env *Environment) (*server.Issuer, error) {
	i := &server.Issuer{
		URL: cmp.Or(f.url, env.OIDCIssuer), JWKS: cmp.Or(f.jwks, env.OIDCJWKS), Audience: cmp.Or(f.audience, env.OIDCAudience),
		RoleClaim: cmp.Or(f.roleClaim, env.OIDCRoleClaim), TenantsClaim: cmp.Or(f.tenantsClaim, env.OIDCTenantsClaim), Roles: map[string]string{},
	}
	pairs := f.roles
	if len(pairs) == 0 && env.OIDCRoles != "" {
		pairs = strings.Split(env.OIDCRoles, ",")
	}
	if i.URL+i.JWKS+i.Audience+i.RoleClaim+i.TenantsClaim == "" && len(pairs) == 0 {
		return nil, nil
	}
	var errs []error
	for _, pair := range pairs {
		role, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if other, twice := i.Roles[value]; twice && other != role {
			errs = append(errs, usage("--oidc-roles maps %q to %s and %s", value, other, role))
		}
		if i.Roles[value] = role; !ok {
			errs = append(errs, usage("--oidc-roles has %q; want ROLE=VALUE, such as admin=platform", pair))
			delete(i.Roles, value)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, i.Check())
	}
	return i, input.Renamed(errors.Join(errs...), func(field string) string {
		return cmp.Or(map[string]string{
			"issuer.url": "--oidc-issuer", "issuer.jwks": "--oidc-jwks", "issuer.audience": "--oidc-audience", "issuer.roles": "--oidc-roles",
		}[field], field)
	})
}
