package httpcall

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// metadataAddrs are those of clouds that are not link-local.
var metadataAddrs = map[netip.Addr]bool{
	netip.MustParseAddr("fd20:ce::254"):    true, // Google, IPv6
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle
}

// metadataNet is where AWS answers at IPv6: EC2 at fd00:ec2::254, EKS Pod Identity at ::23.
var metadataNet = netip.MustParsePrefix("fd00:ec2::/32")

// embedding are the networks whose addresses lead to the IPv4 address that stands in them,
// and the byte where it begins.
var embedding = map[netip.Prefix]int{
	netip.MustParsePrefix("64:ff9b::/96"):    12, // NAT64
	netip.MustParsePrefix("64:ff9b:1::/48"):  12, // NAT64 of one's own, as nearly everybody lays it out
	netip.MustParsePrefix("2002::/16"):       2,  // 6to4
	netip.MustParsePrefix("::/96"):           12, // IPv4-compatible
	netip.MustParsePrefix("::ffff:0:0:0/96"): 12, // SIIT: IPv4-translated
}

func forbiddenAddr(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || metadataAddrs[a] || metadataNet.Contains(a) {
		return true
	}
	if a.Is4() {
		return false
	}
	bytes := a.As16()
	for network, at := range embedding {
		if network.Contains(a) && forbiddenAddr(netip.AddrFrom4([4]byte(bytes[at:at+4]))) {
			return true
		}
	}
	return false
}

// hostAddr is the address that a host is written as, in every way that some resolver takes
// for one: 169.254.169.254, 169.254.169.254., 2852039166, 0xa9fea9fe, 0251.0376.0251.0376,
// 169.254.43518, fe80::1%eth0.
func hostAddr(host string) (netip.Addr, bool) {
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		return a, true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var whole uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 { // the last fills what is left
			bits = 8 * (5 - len(parts))
		}
		n, err := strconv.ParseUint(octal(part), 0, bits)
		if err != nil || strings.ContainsAny(part, "_+-") {
			return netip.Addr{}, false
		}
		whole = whole<<bits | n
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(whole)) // 32 bits were read
	return netip.AddrFrom4(b), true
}

// octal is a number whose leading 0 means octal, as in C; 0b and 0o mean nothing there.
func octal(part string) string {
	if len(part) > 1 && part[0] == '0' && strings.ContainsAny(part[1:2], "bBoO") {
		return ""
	}
	return part
}
