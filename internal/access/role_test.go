package access

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

func TestARoleHasTheRightsOfThoseItIncludes(t *testing.T) {
	for _, c := range []struct {
		role                            Role
		viewer, operator, admin, worker bool
	}{
		{Viewer, true, false, false, false},
		{Operator, true, true, false, false},
		{Admin, true, true, true, true},
		{Worker, false, false, false, true},
		{"", false, false, false, false},
		{"ADMIN", false, false, false, false},
		{"auditor", false, false, false, false}, // of a later release
	} {
		got := []bool{c.role.Includes(Viewer), c.role.Includes(Operator), c.role.Includes(Admin), c.role.Includes(Worker)}
		require.Equal(t, []bool{c.viewer, c.operator, c.admin, c.worker}, got, "%q", c.role)
		require.False(t, c.role.Includes(""), "%q", c.role)
		require.False(t, c.role.Includes("auditor"), "%q", c.role)
	}
}

func TestARoleIsReadByItsNameAlone(t *testing.T) {
	for _, r := range Roles {
		got, err := ParseRole("role", string(r))
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	for _, wrong := range []string{"", "Viewer", "viewer ", "root"} {
		_, err := ParseRole("role", wrong)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, "role is")
		require.ErrorContains(t, err, "want one of viewer, operator, admin, worker")
	}
}

func TestAGrantSeesItsTenantsOnly(t *testing.T) {
	for _, c := range []struct {
		tenants []string
		sees    []string
		not     []string
	}{
		{nil, []string{"", "-", "a", "b"}, nil},
		{[]string{}, nil, []string{"", "-", "a"}},
		{[]string{"a"}, []string{"a"}, []string{"", "-", "b", "A", "a "}},
		{[]string{"-", "b"}, []string{"", "-", "b"}, []string{"a"}},
		{[]string{""}, nil, []string{"", "-", "a"}}, // by hand: no tenant has this name
	} {
		g := Grant{Tenants: c.tenants}
		for _, tenant := range c.sees {
			require.True(t, g.Sees(tenant), "%q of %q", tenant, c.tenants)
		}
		for _, tenant := range c.not {
			require.False(t, g.Sees(tenant), "%q of %q", tenant, c.tenants)
		}
	}
}
