//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// members are the servers of a deployment, as they name themselves.
type members struct {
	uri   *url.URL
	set   string // its name; "" = no replica set: there is one member, which is connected to directly
	hosts []string
}

func findMembers(ctx context.Context, uri string) (m members, err error) {
	if m.uri, err = url.Parse(uri); err != nil {
		return m, fmt.Errorf("the connection string: %w", err)
	}
	if q := m.uri.Query(); m.uri.Scheme != "mongodb" || q.Get("tls") == "true" || q.Get("ssl") == "true" {
		return m, fmt.Errorf("the connection string %s: the network of the chaos understands mongodb:// without TLS only", m.uri.Redacted())
	}
	client, err := engine.Client(uri)
	if err != nil {
		return m, err
	}
	defer func() { _ = client.Disconnect(context.Background()) }() // it was only asked
	var hello struct {
		SetName string
		Hosts   []string
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return m, err
	}
	if m.set, m.hosts = hello.SetName, hello.Hosts; m.set == "" || len(m.hosts) == 0 {
		m.set, m.hosts = "", strings.Split(m.uri.Host, ",")[:1]
	}
	return m, nil
}

// network is the way of one process to the servers: a proxy before each of them.
type network struct {
	proxies []*proxy.Proxy
	uri     string

	mu   sync.Mutex
	busy bool
	fate func() proxy.Fate
}

// way makes a way to the servers. Their answers name the proxies in their place.
func (m members) way() (*network, error) {
	n := &network{}
	names := map[string]string{}
	var at []string
	for _, host := range m.hosts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			n.close()
			return nil, err
		}
		p := proxy.Between(l, func() (net.Conn, error) { return net.Dial("tcp", host) })
		n.proxies, at = append(n.proxies, p), append(at, l.Addr().String())
		names[host] = l.Addr().String()
	}
	for _, p := range n.proxies {
		p.Fates(func(string) proxy.Fate { return n.now() })
		p.Rewrite(func(command string, answer bson.Raw) bson.Raw { return renamed(command, answer, names) })
	}
	u, q := *m.uri, m.uri.Query()
	u.Host, u.Path = strings.Join(at, ","), "/"
	q.Del("directConnection")
	q.Del("replicaSet")
	if m.set != "" {
		q.Set("replicaSet", m.set)
	} else {
		q.Set("directConnection", "true")
	}
	u.RawQuery = q.Encode()
	n.uri = u.String()
	return n, nil
}

// renamed is an answer to hello with other names of the members.
func renamed(command string, answer bson.Raw, names map[string]string) bson.Raw {
	var doc bson.D
	if !strings.EqualFold(command, "hello") && !strings.EqualFold(command, "isMaster") || bson.Unmarshal(answer, &doc) != nil {
		return answer
	}
	for i, e := range doc {
		switch v := e.Value.(type) {
		case string:
			if to := names[v]; to != "" && slices.Contains([]string{"me", "primary"}, e.Key) {
				doc[i].Value = to
			}
		case bson.A:
			for k := range v {
				if name, ok := v[k].(string); ok && names[name] != "" {
					v[k] = names[name]
				}
			}
		}
	}
	out, err := bson.Marshal(doc)
	if err != nil {
		return answer
	}
	return out
}

func (n *network) now() proxy.Fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fate == nil {
		return proxy.Fate{}
	}
	return n.fate()
}

// trouble is a state of the network: its name, and what it does to commands.
type trouble struct {
	name string
	fate func() proxy.Fate // nil = nobody gets through, and connections are refused
}

// forGood is longer than any run lasts.
const forGood = 10_000 * time.Hour

// troubles are those of a network.
var troubles = []trouble{
	{"network cut", nil},
	{"network half-open, commands are lost", func() proxy.Fate { return proxy.Fate{Before: forGood} }},
	{"network half-open, answers are lost", func() proxy.Fate { return proxy.Fate{After: forGood} }},
	{"network slow", func() proxy.Fate {
		return proxy.Fate{Before: rand.N(200 * time.Millisecond), After: rand.N(200 * time.Millisecond)}
	}},
	{"network reordered", func() proxy.Fate { // connections overtake each other by far
		if rand.IntN(4) > 0 {
			return proxy.Fate{}
		}
		return proxy.Fate{Before: rand.N(2 * time.Second), After: rand.N(2 * time.Second)}
	}},
	{"network breaks connections", func() proxy.Fate {
		return proxy.Fate{Do: []proxy.Action{proxy.Pass, proxy.Pass, proxy.Pass, proxy.CutBefore, proxy.CutAfter}[rand.IntN(5)]}
	}},
}

// begin begins a trouble; false = there is one.
func (n *network) begin(t trouble) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy {
		return false
	}
	n.busy, n.fate = true, t.fate
	if t.fate == nil {
		for _, p := range n.proxies {
			p.Cut()
		}
	}
	return true
}

func (n *network) troubled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy
}

// mend ends the trouble. Commands and answers that are still on their way are lost. If hears is set, the connections
// break. Otherwise those that wait for an answer wait in vain.
func (n *network) mend(hears bool) {
	n.mu.Lock()
	n.busy, n.fate = false, nil
	n.mu.Unlock()
	for _, p := range n.proxies {
		p.Mend()
		if hears {
			p.Drop()
		}
	}
}

func (n *network) close() {
	for _, p := range n.proxies {
		p.Close()
	}
}
