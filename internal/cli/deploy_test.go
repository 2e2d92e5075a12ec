package cli

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/form"
)

// stopMargin is what a process takes at most beside its handlers and its delay: the last requests, and closing.
const stopMargin = 15 * time.Second

// yamlFile reads the documents of a file.
func yamlFile[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	docs, err := form.Read[form.Value](name, data, "an object", "objects")
	require.NoError(t, err)
	out := make([]T, len(docs))
	for i, doc := range docs {
		require.NoError(t, json.Unmarshal(*doc.Form, &out[i]), name)
	}
	return out
}

// deployed is a process as a file starts it: its flags are those of args, and of the configuration file.
func deployed(t *testing.T, args []string, config string) *pflag.FlagSet {
	t.Helper()
	cmd, rest, err := (&app{}).root().Find(args)
	require.NoError(t, err)
	require.NoError(t, cmd.ParseFlags(rest), "%v", args)
	require.Empty(t, cmd.Flags().Args())
	if config != "" {
		name := filepath.Join(t.TempDir(), "mscheduler.yaml")
		require.NoError(t, os.WriteFile(name, []byte(config), 0o600))
		file, err := readSettings(name)
		require.NoError(t, err)
		for _, s := range file.of(cmd.Name()) {
			require.NoError(t, setFlag(cmd.Flags().Lookup(s.Name), s))
		}
	}
	return cmd.Flags()
}

// stops is how long a process may take to stop.
func stops(t *testing.T, flags *pflag.FlagSet) time.Duration {
	sum := stopMargin
	for _, name := range []string{"shutdown-timeout", "shutdown-delay"} {
		if f := flags.Lookup(name); f != nil && f.Value.String() != "" {
			d, err := form.ParseDuration(f.Value.String())
			require.NoError(t, err)
			sum += d
		}
	}
	return sum
}

func portOf(t *testing.T, flags *pflag.FlagSet, name string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(flags.Lookup(name).Value.String())
	require.NoError(t, err, name)
	return port
}

// variables are those that the binary reads.
func variables() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Environment]()) {
		names = append(names, "MSCHEDULER_"+f.Tag.Get("envconfig"))
	}
	return names
}

func TestTheComposeFileFitsTheBinary(t *testing.T) {
	type service struct {
		Image       string
		Command     []string
		Environment map[string]string
		Grace       string `json:"stop_grace_period"`
		ReadOnly    bool   `json:"read_only"`
		Healthcheck struct{ Test []string }
		DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
	}
	file := yamlFile[struct{ Services map[string]service }](t, "../../deploy/compose.yaml")[0]
	ours := 0
	for name, s := range file.Services {
		for other, on := range s.DependsOn {
			require.Contains(t, file.Services, other, name)
			require.Equal(t, on.Condition == "service_healthy", len(file.Services[other].Healthcheck.Test) > 0, "%s waits for %s", name, other)
		}
		if s.Image != "mscheduler" {
			continue
		}
		ours++
		flags := deployed(t, s.Command, "")
		for v := range s.Environment {
			require.Contains(t, variables(), v)
		}
		grace, err := time.ParseDuration(s.Grace)
		require.NoError(t, err)
		require.Greater(t, grace, stops(t, flags), name)
		require.True(t, s.ReadOnly)
		check := s.Healthcheck.Test
		require.Equal(t, []string{"CMD", "/mscheduler", "health"}, check[:3])
		u, err := url.Parse(check[3])
		require.NoError(t, err)
		require.Equal(t, "/readyz", u.Path)
		require.Equal(t, portOf(t, flags, "metrics-bind"), u.Port())
		require.NotEmpty(t, flags.Lookup("completion-url").Value.String(), "both need it: every address is bound")
	}
	require.Equal(t, 2, ours)
	mongo := file.Services["replicaset"]
	for _, member := range []string{"mongo1", "mongo2", "mongo3"} {
		require.Contains(t, strings.Join(mongo.Command, ""), member+":27017")
		require.Contains(t, file.Services["serve"].Environment["MSCHEDULER_MONGODB_URI"], member)
	}
}

// manifest is what this test reads of an object of Kubernetes.
type manifest struct {
	Kind       string
	Metadata   struct{ Name string }
	Data       map[string]string
	StringData map[string]string
	Spec       struct {
		Replicas       int
		MaxUnavailable int
		Selector       json.RawMessage
		Ports          []struct{ TargetPort string }
		Template       struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace           int `json:"terminationGracePeriodSeconds"`
				SecurityContext struct{ RunAsNonRoot bool }
				Containers      []struct {
					Args    []string
					Env     []struct{ Name, Value string }
					EnvFrom []struct{ SecretRef struct{ Name string } }
					Ports   []struct {
						Name          string
						ContainerPort json.Number
					}
					StartupProbe    check
					LivenessProbe   check
					ReadinessProbe  check
					SecurityContext struct{ ReadOnlyRootFilesystem bool }
					VolumeMounts    []struct{ Name, MountPath string }
				}
				Volumes []struct {
					Name      string
					ConfigMap struct{ Name string }
				}
			}
		}
	}
}

type check struct{ HTTPGet struct{ Path, Port string } }

func TestTheManifestsFitTheBinary(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	require.NoError(t, err)
	var all []manifest
	for _, name := range files {
		all = append(all, yamlFile[manifest](t, name)...)
	}
	named := func(kind, name string) manifest {
		t.Helper()
		i := slices.IndexFunc(all, func(m manifest) bool { return m.Kind == kind && m.Metadata.Name == name })
		require.GreaterOrEqual(t, i, 0, "%s %s", kind, name)
		return all[i]
	}
	for v := range named("Secret", "mscheduler").StringData {
		require.Contains(t, variables(), v)
	}
	for _, name := range []string{"serve", "work"} {
		m := named("Deployment", "mscheduler-"+name)
		labels, err := json.Marshal(m.Spec.Template.Metadata.Labels)
		require.NoError(t, err)
		require.JSONEq(t, `{"matchLabels": `+string(labels)+`}`, string(m.Spec.Selector))
		budget := named("PodDisruptionBudget", m.Metadata.Name)
		require.JSONEq(t, string(m.Spec.Selector), string(budget.Spec.Selector))
		require.Less(t, budget.Spec.MaxUnavailable, m.Spec.Replicas)

		pod := m.Spec.Template.Spec
		c := pod.Containers[0]
		require.Equal(t, "mscheduler", c.EnvFrom[0].SecretRef.Name)
		require.Equal(t, "MSCHEDULER_CONFIG", c.Env[0].Name)
		require.Equal(t, c.VolumeMounts[0].MountPath, filepath.Dir(c.Env[0].Value))
		require.Equal(t, c.VolumeMounts[0].Name, pod.Volumes[0].Name)
		config := named("ConfigMap", pod.Volumes[0].ConfigMap.Name).Data[filepath.Base(c.Env[0].Value)]
		require.NotEmpty(t, config)
		flags := deployed(t, c.Args, config)
		require.Equal(t, name, c.Args[0])
		require.Greater(t, time.Duration(pod.Grace)*time.Second, stops(t, flags))
		require.True(t, pod.SecurityContext.RunAsNonRoot && c.SecurityContext.ReadOnlyRootFilesystem)

		ports := map[string]string{}
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort.String()
		}
		require.Equal(t, portOf(t, flags, "metrics-bind"), ports["metrics"])
		require.Equal(t, check{struct{ Path, Port string }{"/livez", "metrics"}}, c.StartupProbe)
		require.Equal(t, c.StartupProbe, c.LivenessProbe, "a database that is away is no reason to kill a worker")
		require.Equal(t, check{struct{ Path, Port string }{"/readyz", "metrics"}}, c.ReadinessProbe)
		if name == "serve" {
			require.Equal(t, portOf(t, flags, "bind"), ports["http"])
			service := named("Service", "mscheduler")
			require.JSONEq(t, string(labels), string(service.Spec.Selector))
			require.Equal(t, "http", service.Spec.Ports[0].TargetPort)
			require.NotEmpty(t, flags.Lookup("shutdown-delay").Value.String())
		}
	}
}

// A deployment grows for any task that it would run.
func TestTheAutoscalerCountsTheTypesThatWorkRuns(t *testing.T) {
	scaled := yamlFile[struct {
		Spec struct {
			ScaleTargetRef  struct{ Name string }
			MinReplicaCount int `yaml:"minReplicaCount"`
			Triggers        []struct{ Metadata struct{ Query string } }
		}
	}](t, "../../deploy/keda/scaledobject.yaml")[0].Spec
	require.Equal(t, "mscheduler-work", scaled.ScaleTargetRef.Name)
	require.Positive(t, scaled.MinReplicaCount, "workers also move ended tasks to the history")
	require.Len(t, scaled.Triggers, 1)
	found := regexp.MustCompile(`type=~("[^"]*")`).FindStringSubmatch(scaled.Triggers[0].Metadata.Query)
	require.NotNil(t, found)
	text, err := strconv.Unquote(found[1]) // strings of PromQL are those of Go
	require.NoError(t, err)
	counted := regexp.MustCompile("^(?:" + text + ")$")

	s := newSession(t)
	s.start("work", "--worker-id", "w1") // allow-exec is off in the deployment, too
	var workers struct {
		Workers []struct {
			ID    string
			Types []string
		}
	}
	s.eventually("a worker", func() bool {
		r := s.run("worker", "list", "-o", "json")
		return r.code == ExitOK && json.Unmarshal([]byte(r.stdout), &workers) == nil && len(workers.Workers) == 1
	})
	require.Contains(t, workers.Workers[0].Types, "http")
	require.Contains(t, workers.Workers[0].Types, "mscheduler.callback")
	for _, typ := range workers.Workers[0].Types {
		require.True(t, counted.MatchString(typ), "%s does not count %s", text, typ)
	}
	for _, typ := range []string{"mail", "exec", "mscheduler.node"} { // which it does not run
		require.False(t, counted.MatchString(typ), "%s counts %s", text, typ)
	}
}
