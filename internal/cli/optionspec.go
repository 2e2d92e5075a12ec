package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// layeredYAML are the options that a type and a single task may say, as files say them.
type layeredYAML struct {
	Timeout            inMinutes     `yaml:"timeout,omitempty"`
	Retry              *retryYAML    `yaml:"retry,omitempty"`
	NeedManual         *bool         `yaml:"need_manual,omitempty"`
	MaxLapses          *int          `yaml:"max_lapses,omitempty"`
	MaxErrorsPerWorker int           `yaml:"max_errors_per_worker,omitempty"`
	PingInterval       inSeconds     `yaml:"ping_interval,omitempty"`
	WorkerTimeout      inSeconds     `yaml:"worker_timeout,omitempty"`
	Retention          duration      `yaml:"retention,omitempty"`
	Callback           *callbackYAML `yaml:"callback,omitempty"`
}

func (y *layeredYAML) options() model.Options {
	return model.Options{
		ExecutionTimeout: time.Duration(y.Timeout), Retry: y.Retry.retry(), NeedManual: y.NeedManual,
		MaxLapses: y.MaxLapses, MaxErrorsPerWorker: y.MaxErrorsPerWorker,
		PingInterval: time.Duration(y.PingInterval), WorkerTimeout: time.Duration(y.WorkerTimeout),
		Retention: time.Duration(y.Retention), Callback: y.Callback.callback(),
	}
}

func layeredOf(o *model.Options) layeredYAML {
	return layeredYAML{
		Timeout: inMinutes(o.ExecutionTimeout), Retry: retryOf(o.Retry), NeedManual: o.NeedManual, MaxLapses: o.MaxLapses,
		MaxErrorsPerWorker: o.MaxErrorsPerWorker, PingInterval: inSeconds(o.PingInterval), WorkerTimeout: inSeconds(o.WorkerTimeout),
		Retention: duration(o.Retention), Callback: callbackOf(o.Callback),
	}
}

type retryYAML struct {
	Strategy    string      `yaml:"strategy,omitempty"` // none, fixed, fixed_period, sequence, exponential
	Interval    aDelay      `yaml:"interval,omitempty"`
	Sequence    []inSeconds `yaml:"sequence,omitempty,flow"`
	Factor      float64     `yaml:"factor,omitempty"`
	MaxInterval aDelay      `yaml:"max_interval,omitempty"`
	Jitter      float64     `yaml:"jitter,omitempty"`
	MaxErrors   *int        `yaml:"max_errors,omitempty"`
	Local       *localYAML  `yaml:"local,omitempty"`
}

type localYAML struct {
	Count    int       `yaml:"count,omitempty"`
	Interval inSeconds `yaml:"interval,omitempty"`
}

type callbackYAML struct {
	Success   *targetYAML   `yaml:"success,omitempty"`
	Error     *targetYAML   `yaml:"error,omitempty"`
	OnPending bool          `yaml:"on_pending,omitempty"`
	Security  *securityYAML `yaml:"security,omitempty"`
}

type targetYAML struct {
	URL    string `yaml:"url"`
	Method string `yaml:"method,omitempty"`
}

// securityYAML has one key in ak and sk, as seed 000 has it, or several in keys.
type securityYAML struct {
	Type string    `yaml:"type"`
	AK   string    `yaml:"ak,omitempty"`
	SK   string    `yaml:"sk,omitempty"`
	Keys []keyYAML `yaml:"keys,omitempty"`
}

type keyYAML struct {
	AK string `yaml:"ak"`
	SK string `yaml:"sk"`
}

// Durations are written as 10s, 5m, 2h or 7d. Where seed 000 has numbers they may be
// written as those too: the timeout in minutes, delays in seconds.
type (
	duration  time.Duration
	inSeconds time.Duration
	inMinutes time.Duration
)

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *duration) UnmarshalYAML(n *yaml.Node) error { return readDuration(d, n, 0) }

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *inSeconds) UnmarshalYAML(n *yaml.Node) error { return readDuration(d, n, time.Second) }

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *inMinutes) UnmarshalYAML(n *yaml.Node) error { return readDuration(d, n, time.Minute) }

// MarshalYAML implements yaml.Marshaler.
func (d duration) MarshalYAML() (any, error) { return span(time.Duration(d)), nil }

// MarshalYAML implements yaml.Marshaler.
func (d inSeconds) MarshalYAML() (any, error) { return span(time.Duration(d)), nil }

// MarshalYAML implements yaml.Marshaler.
func (d inMinutes) MarshalYAML() (any, error) { return span(time.Duration(d)), nil }

// aDelay is inSeconds that must not be 0, which would silently be the default.
type aDelay time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *aDelay) UnmarshalYAML(n *yaml.Node) error {
	if err := readDuration(d, n, time.Second); err != nil || *d != 0 {
		return err
	}
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is no delay; want at least 1ms, or nothing for the default", n.Line, n.Value)}}
}

// MarshalYAML implements yaml.Marshaler.
func (d aDelay) MarshalYAML() (any, error) { return span(time.Duration(d)), nil }

func readDuration[D ~int64](d *D, n *yaml.Node, unit time.Duration) error {
	if number, err := strconv.ParseFloat(n.Value, 64); n.Kind == yaml.ScalarNode && err == nil && (unit > 0 || number == 0) && math.Abs(number)*float64(unit) < math.MaxInt64 {
		*d = D(number * float64(unit))
		return nil
	}
	v, err := parseDuration("", n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is no duration; want one such as 30s, 5m, 2h or 7d", n.Line, n.Value)}}
	}
	*d = D(v)
	return nil
}

// span writes a duration without the zeros behind it.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func (r *retryYAML) retry() *model.Retry {
	if r == nil {
		return nil
	}
	out := &model.Retry{
		Strategy: model.RetryStrategy(r.Strategy), Interval: time.Duration(r.Interval), Factor: r.Factor,
		MaxInterval: time.Duration(r.MaxInterval), Jitter: r.Jitter, MaxErrors: r.MaxErrors,
	}
	if r.Strategy == "fixed_period" { // its name in seed 000
		out.Strategy = model.RetryFixed
	}
	for _, d := range r.Sequence {
		out.Sequence = append(out.Sequence, time.Duration(d))
	}
	if r.Local != nil {
		out.Local = &model.LocalRetry{Count: r.Local.Count, Interval: time.Duration(r.Local.Interval)}
	}
	return out
}

func (c *callbackYAML) callback() *model.Callback {
	if c == nil {
		return nil
	}
	out := &model.Callback{Success: c.Success.target(), Error: c.Error.target(), OnPending: c.OnPending}
	if s := c.Security; s != nil {
		out.Security = &model.CallbackSecurity{Type: s.Type}
		if s.AK != "" || s.SK != "" {
			out.Security.Keys = append(out.Security.Keys, model.CallbackKey{AccessKey: s.AK, Secret: s.SK})
		}
		for _, k := range s.Keys {
			out.Security.Keys = append(out.Security.Keys, model.CallbackKey{AccessKey: k.AK, Secret: k.SK})
		}
	}
	return out
}

func (t *targetYAML) target() *model.CallbackTarget {
	if t == nil {
		return nil
	}
	return &model.CallbackTarget{URL: t.URL, Method: t.Method}
}

func retryOf(r *model.Retry) *retryYAML {
	if r == nil {
		return nil
	}
	out := &retryYAML{
		Strategy: string(r.Strategy), Interval: aDelay(r.Interval), Factor: r.Factor,
		MaxInterval: aDelay(r.MaxInterval), Jitter: r.Jitter, MaxErrors: r.MaxErrors,
	}
	for _, d := range r.Sequence {
		out.Sequence = append(out.Sequence, inSeconds(d))
	}
	if r.Local != nil {
		out.Local = &localYAML{Count: r.Local.Count, Interval: inSeconds(r.Local.Interval)}
	}
	return out
}

func callbackOf(c *model.Callback) *callbackYAML {
	if c == nil {
		return nil
	}
	target := func(t *model.CallbackTarget) *targetYAML {
		if t == nil {
			return nil
		}
		return &targetYAML{URL: safetext.URL(t.URL), Method: t.Method}
	}
	out := &callbackYAML{Success: target(c.Success), Error: target(c.Error), OnPending: c.OnPending}
	if c.Security != nil {
		out.Security = &securityYAML{Type: c.Security.Type, Keys: hiddenKeys(c.Security.Keys)}
	}
	return out
}

// hiddenKeys are keys as files show them: their secrets are not.
func hiddenKeys(keys []model.CallbackKey) (out []keyYAML) {
	for _, k := range keys {
		out = append(out, keyYAML{AK: k.AccessKey, SK: safetext.Hidden})
	}
	return out
}
