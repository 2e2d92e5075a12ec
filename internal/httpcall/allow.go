package httpcall

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
)

// Allow is a list of hosts and networks. A host is allowed by its name, whatever it resolves to,
// or by its address. nil allows everything.
type Allow struct {
	names map[string]bool // example.org, and .example.org for all below it
	nets  []netip.Prefix
}

// ParseAllow reads entries such as example.org, *.example.org, 10.0.0.0/8 and 192.0.2.7. No
// entries are nil. field names them in errors.
func ParseAllow(field string, entries []string) (*Allow, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	a := &Allow{names: map[string]bool{}}
	for _, entry := range entries {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if p, err := netip.ParsePrefix(entry); err == nil {
			a.nets = append(a.nets, p.Masked())
			continue
		}
		if addr, err := netip.ParseAddr(entry); err == nil {
			a.nets = append(a.nets, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		name := strings.TrimPrefix(entry, "*")
		if strings.Trim(name, ".") == "" || strings.ContainsAny(name, "*/:@ ") || name != entry && name[0] != '.' {
			return nil, input.Invalid(field, "has %q; want a host, *.host, an address or a network such as 10.0.0.0/8", entry)
		}
		a.names[name] = true
	}
	return a, nil
}

// named reports whether the host is allowed by its name.
func (a *Allow) named(host string) bool {
	if a == nil {
		return true
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, ok := hostAddr(host); ok {
		return a.at(addr)
	}
	for i := range len(host) {
		if host[i] == '.' && a.names[host[i:]] {
			return true
		}
	}
	return a.names[host]
}

// at reports whether the address is allowed.
func (a *Allow) at(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(a.nets, func(n netip.Prefix) bool { return n.Contains(addr) })
}
