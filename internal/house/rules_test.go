package house

// Module is what the paths below are relative to.
const module = "github.com/mscheduler/mscheduler"

// mayImport says, for each package of ours, which others of ours it may import. A path
// that ends in "/..." stands for everything below it too. Test files are free, but for
// what neverImported and onlyBelow say.
var mayImport = map[string][]string{
	// The core: documents and pure rules. Whoever may import "core" may import each of these.
	"internal/clock":     {},
	"internal/measure":   {"internal/clock"},
	"internal/safetext":  {},
	"callback":           {"internal/clock"},
	"model":              {"callback", "internal/clock", "internal/safetext"},
	"internal/tracing":   {"model", "internal/clock", "internal/safetext"},
	"internal/failkind":  {},
	"periodic/schedule":  {"model", "callback"},
	"flow/graph":         {"model"},
	"plan/repeat":        {"model"},
	"internal/input":     {"model", "internal/safetext"},
	"internal/codec":     {"model", "internal/failkind", "internal/clock", "internal/safetext", "internal/input"},
	"internal/lifecycle": {"model", "internal/failkind", "internal/clock", "internal/safetext", "internal/input", "internal/codec"},

	// The store and what services embed.
	"internal/groupcommit": {},
	"internal/follow":      {"core", "internal/store"},
	"internal/store":       {"core"},
	"internal/access":      {"core", "internal/groupcommit", "internal/httpcall", "internal/store"},
	"internal/tasktypes":   {"core", "internal/store"},
	"internal/decision":    {"core", "internal/store", "internal/tasktypes"},
	"internal/claim":       {"core", "internal/store", "internal/tasktypes", "internal/limits"},
	"internal/health":      {"core", "internal/store", "internal/claim"},
	"internal/lapse":       {"core", "internal/store", "internal/claim", "internal/health"},
	"internal/lease":       {"core", "internal/store", "internal/claim", "internal/health"},
	"internal/stream":      {"core", "internal/store", "internal/health"},
	"internal/control":     {"core", "internal/store", "internal/health"},
	"internal/presence":    {"core", "internal/store", "internal/claim", "internal/health"},
	"internal/outcome":     {"core", "internal/store", "internal/groupcommit"},
	"internal/limits":      {"core", "internal/store", "internal/groupcommit", "internal/tasktypes"},
	"internal/fetchplan":   {"core", "internal/claim"},
	"internal/finish":      {"core", "internal/store", "internal/groupcommit", "internal/health"},
	"internal/upkeep":      {"core", "internal/store", "internal/tasktypes", "internal/outcome", "internal/limits"},
	"internal/command":     {"core", "internal/store", "internal/groupcommit", "internal/tasktypes", "internal/limits", "internal/outcome", "internal/callback", "internal/secret"},
	"producer":             {"core", "internal/store", "internal/follow", "internal/groupcommit", "internal/command", "internal/secret"},
	"admin":                {"core", "internal/store", "internal/secret", "internal/command", "producer"},
	"pull":                 {"core", "internal/store", "internal/groupcommit", "internal/tasktypes", "internal/claim", "internal/limits", "internal/command", "producer"},
	"consumer":             {"core", "internal/workerevent", "internal/store", "internal/fetchplan", "internal/finish", "internal/tasktypes", "internal/claim", "internal/control", "internal/decision", "internal/health", "internal/lapse", "internal/lease", "internal/limits", "internal/outcome", "internal/presence", "internal/stream", "internal/upkeep", "internal/callback", "internal/secret", "internal/httpcall"},
	"internal/workerevent": {},
	"internal/census":      {"core", "internal/store"},
	"internal/stats":       {"core", "internal/census", "internal/store", "internal/tickplan"},
	"internal/probe":       {"internal/store"},
	"internal/calendar":    {},
	"internal/rulespec":    {"core", "internal/calendar", "internal/httptarget", "internal/secret", "internal/tickplan"},
	"internal/tickplan":    {"core", "internal/calendar", "internal/httptarget"},
	"periodic":             {"core", "internal/command", "internal/decision", "internal/rulespec", "internal/tickplan", "internal/store", "internal/tasktypes", "internal/calendar", "internal/outcome", "internal/httptarget", "internal/httpcall", "internal/secret", "producer"},
	"internal/flowspec":    {"core", "internal/mql/query"},
	"internal/flowplan":    {"core", "internal/mql/query", "internal/flowspec"},
	"flow":                 {"core", "internal/decision", "internal/flowplan", "internal/flowspec", "internal/follow", "internal/groupcommit", "internal/secret", "internal/store", "internal/tasktypes"},
	"internal/stepplan":    {"core", "internal/calendar"},
	"plan":                 {"core", "internal/decision", "internal/follow", "internal/secret", "internal/stepplan", "internal/store", "internal/tasktypes"},
	"migrate":              {"core", "internal/store"},
	"internal/secret":      {"core"},
	"internal/httpcall":    {"core", "internal/secret"},
	"internal/httptarget":  {"core", "internal/httpcall"},
	"internal/callback":    {"core", "internal/store", "internal/outcome", "internal/secret", "internal/httpcall", "internal/httptarget"},

	// The binary.
	"internal/mql/...":      {"internal/mql/..."},
	"internal/embedded/...": {"internal/embedded/...", "internal/mql/...", "internal/clock"},
	"internal/builtin":      {"core", "consumer", "internal/httpcall", "internal/httptarget", "internal/secret"},
	"internal/form":         {"core", "producer", "periodic", "internal/calendar", "internal/httpcall", "internal/secret"},
	"internal/human":        {},
	"internal/bulk":         {"core", "producer", "admin", "consumer", "internal/command", "internal/failure", "internal/form", "internal/secret", "internal/store", "internal/taskchange"},
	"internal/taskchange":   {"core", "producer", "internal/builtin", "internal/form", "internal/secret"},
	"internal/view":         {"core", "flow", "internal/calendar", "internal/flowdraw", "internal/flowplan", "internal/flowspec", "internal/human", "internal/secret", "internal/stepplan", "internal/store", "internal/tickplan"},
	"internal/audit":        {"core", "internal/bulk", "internal/groupcommit", "internal/secret", "internal/store", "internal/view"},
	"internal/rulechange":   {"core", "periodic", "internal/builtin", "internal/calendar", "internal/form", "internal/human", "internal/rulespec", "internal/secret", "internal/store", "internal/tickplan", "internal/view"},
	"internal/failure":      {"core", "internal/store"},
	"internal/flowdraw":     {"core"},
	"internal/fleet":        {"internal/clock"},
	"internal/scratch":      {"core", "internal/dropdb", "internal/store", "internal/embedded"},
	"internal/dropdb":       {},
	"internal/explain":      {"core", "internal/human"},
	"internal/doctor":       {"core", "internal/flowplan", "internal/human", "internal/secret", "internal/stepplan", "internal/store", "internal/tickplan"},
	"internal/facts":        {"core", "internal/explain", "internal/store"},
	"internal/demo":         {"core", "internal/store", "internal/fleet", "internal/human", "internal/scratch"},
	"internal/scalemodel":   {"core", "internal/store", "internal/claim", "internal/control", "internal/fetchplan", "internal/lapse", "internal/lease", "internal/presence", "internal/stream", "internal/upkeep"},
	"internal/bench":        {"core", "internal/workerevent", "producer", "admin", "consumer", "flow", "periodic", "plan", "internal/store", "internal/fleet", "internal/proxy", "internal/scratch", "internal/upkeep", "server"},
	"internal/cli": {
		"core", "internal/access", "internal/audit", "internal/rulespec", "internal/tickplan", "internal/flowspec", "internal/flowplan", "internal/flowdraw", "internal/stepplan", "producer", "admin", "consumer", "periodic", "flow", "plan", "migrate", "internal/store", "internal/clock",
		"internal/bench", "internal/builtin", "internal/bulk", "internal/calendar", "internal/census", "internal/demo", "internal/doctor", "internal/embedded", "internal/facts", "internal/failure", "internal/form", "internal/httpcall", "internal/httptarget", "internal/human", "internal/probe", "internal/rulechange", "internal/scalemodel", "internal/secret", "internal/stats", "internal/taskchange", "internal/upkeep", "internal/view", "metrics", "server",
	},
	"cmd/mscheduler":     {"internal/cli"},
	"internal/rest":      {"core", "producer", "admin", "pull", "periodic", "flow", "plan", "internal/access", "internal/audit", "internal/builtin", "internal/bulk", "internal/census", "internal/command", "internal/doctor", "internal/facts", "internal/failure", "internal/follow", "internal/form", "internal/httptarget", "internal/probe", "internal/rulechange", "internal/secret", "internal/stats", "internal/stepplan", "internal/store", "internal/taskchange", "internal/tickplan", "internal/view"},
	"internal/dashboard": {"core", "internal/calendar", "internal/form", "internal/probe"},
	"server":             {"internal/access", "internal/dashboard", "internal/input", "internal/rest"},
	"metrics":            {"core", "internal/census", "internal/store"},

	// Tests.
	"internal/engine":     {"internal/dropdb", "internal/embedded", "internal/clock", "internal/fleet", "internal/proxy"},
	"internal/fakeworker": {"core", "internal/store"},
	"internal/fakeissuer": {},
	"internal/flowmodel":  {"flow/graph"},
	"internal/promises":   {"core", "internal/flowspec", "internal/store"},
	"internal/proxy":      {},
	"internal/scenario":   {},
	"internal/testdb":     {"internal/engine", "internal/embedded", "internal/proxy"},
	"mstest":              {"core", "producer", "admin", "consumer", "internal/engine", "internal/embedded", "internal/container"},
	"internal/container":  {"internal/engine"},
	"integration":         {},
	"integration/chaos":   {},
	"integration/sim":     {},
	"internal/house/...":  {},
	"docs/tutorial":       {"model", "producer", "consumer", "periodic", "periodic/schedule"},
}

// core is what a line of mayImport means by "core".
var core = []string{
	"model", "callback", "periodic/schedule", "flow/graph", "plan/repeat", "internal/failkind", "internal/clock", "internal/measure", "internal/safetext", "internal/tracing", "internal/input", "internal/codec", "internal/lifecycle",
}

// neverImported are packages that nothing imports, tests included.
var neverImported = []string{"cmd/...", "integration/...", "docs/..."}

// thirdParties are the only modules that what a service links in may use: the packages
// of libraries and everything of ours that they reach.
var thirdParties = []string{
	"go.mongodb.org/mongo-driver/v2",
	"github.com/robfig/cron/v3",
	"github.com/rs/zerolog",
	"go.opentelemetry.io/otel", // its API, with the hash that it uses
	"github.com/cespare/xxhash/v2",
}

var libraries = []string{"model", "producer", "admin", "pull", "consumer", "periodic", "periodic/schedule", "flow", "flow/graph", "plan", "plan/repeat", "migrate", "callback"}

// unreachable are packages that must not be linked into others, however long the chain
// of imports between them.
var unreachable = []struct {
	from, to []string
	why      string
}{
	{
		from: libraries,
		to: []string{
			"github.com/testcontainers/...", "github.com/moby/...", "github.com/spf13/...",
			"go.etcd.io/bbolt/...", "github.com/tidwall/...", "github.com/stretchr/...", "github.com/danielgtaylor/...",
			"testing/...", module + "/internal/embedded/...", "github.com/prometheus/...",
			"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/...", "go.opentelemetry.io/otel/internal/global/...",
		},
		why: "a service that embeds mscheduler must not carry it",
	},
	{
		from: []string{"model", "producer", "admin", "pull", "consumer", "periodic", "periodic/schedule", "migrate", "callback"},
		to:   []string{module + "/internal/mql/..."},
		why:  "only flows ask documents by themselves, for the conditions on their edges",
	},
	{
		from: []string{"callback"},
		to:   []string{"go.mongodb.org/...", "github.com/rs/..."},
		why:  "a receiver of callbacks has nothing to do with the database",
	},
	{
		from: []string{"cmd/mscheduler"},
		to:   []string{"github.com/testcontainers/...", "github.com/moby/...", "github.com/stretchr/...", "testing/..."},
		why:  "the binary must not carry a test kit",
	},
}

// testKits are packages that only tests import, internal/proxy excepted, which a bench puts
// before the server, and the tutorial's service: nobody explains their log lines.
var testKits = []string{"mstest/...", "integration/...", "internal/testdb", "internal/container", "internal/engine", "internal/fakeissuer", "internal/fakeworker", "internal/flowmodel", "internal/promises", "internal/proxy", "internal/scenario", "internal/house/...", "docs/..."}

// told are the packages whose log lines docs/reference.md explains: what an operator of
// a worker, a producer or an embedded server may see.
var told = []string{"model", "producer", "admin", "pull", "consumer", "migrate", "metrics", "internal/..."}
