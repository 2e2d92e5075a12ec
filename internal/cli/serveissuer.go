package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/server"
)

// issuerFlags name an identity provider whose tokens the API accepts.
type issuerFlags struct {
	url, jwks, audience, roleClaim, tenantsClaim string
	roles                                        []string
}

func (f *issuerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "oidc-issuer", "", "identity provider whose tokens are accepted: the claim iss, such as https://id.example.org; defaults to none")
	flags.StringVar(&f.jwks, "oidc-jwks", "", "https URL or file of the provider's public keys, a JSON Web Key Set")
	flags.StringVar(&f.audience, "oidc-audience", "", "audience that a token must name in the claim aud, such as a client id")
	flags.StringSliceVar(&f.roles, "oidc-roles", nil, "roles by values of the role claim, such as admin=platform,operator=oncall")
	flags.StringVar(&f.roleClaim, "oidc-role-claim", "", "claim with the values of --oidc-roles, such as realm_access.roles; defaults to roles")
	flags.StringVar(&f.tenantsClaim, "oidc-tenants-claim", "", "claim with the tenants of a token, * for all; defaults to none: every token covers all tenants")
	for _, name := range []string{"oidc-issuer", "oidc-jwks", "oidc-audience", "oidc-roles", "oidc-role-claim", "oidc-tenants-claim"} {
		withVariable(flags, name, "MSCHEDULER_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
}

// issuer checks the flags; nil = no provider.
func (f *issuerFlags) issuer() (*server.Issuer, error) {
	i := &server.Issuer{
		URL: f.url, JWKS: f.jwks, Audience: f.audience, RoleClaim: f.roleClaim, TenantsClaim: f.tenantsClaim, Roles: map[string]string{},
	}
	if i.URL+i.JWKS+i.Audience+i.RoleClaim+i.TenantsClaim == "" && len(f.roles) == 0 {
		return nil, nil
	}
	var errs []error
	for _, pair := range f.roles {
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
		errs = append(errs, access.Issuer(*i).Check())
	}
	return i, input.Renamed(errors.Join(errs...), func(field string) string {
		return cmp.Or(map[string]string{
			"issuer.url": "--oidc-issuer", "issuer.jwks": "--oidc-jwks", "issuer.audience": "--oidc-audience", "issuer.roles": "--oidc-roles",
		}[field], field)
	})
}
