package cli

import (
	"bytes"
	"encoding/json"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic"
)

// httpTargetYAML is what a rule calls at each tick, as a file says it.
type httpTargetYAML struct {
	URL               string            `yaml:"url"`
	Method            string            `yaml:"method,omitempty"`
	Headers           map[string]string `yaml:"headers,omitempty"`
	Body              bodyText          `yaml:"body,omitempty"`
	Timeout           duration          `yaml:"timeout,omitempty"`
	Expect            jsonValue         `yaml:"expect,omitempty"` // 200, 2xx, 200-204
	Mode              string            `yaml:"mode,omitempty"`   // SYNC, ASYNC
	CompletionTimeout duration          `yaml:"callback_timeout,omitempty"`
	CompletionMethod  string            `yaml:"callback_method,omitempty"` // POST, PUT
	Keys              []keyYAML         `yaml:"keys,omitempty"`            // sign the call
}

// bodyText is a body: a text, or what is written as YAML and sent as JSON.
type bodyText string

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *bodyText) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode((*string)(t)) //nolint:wrapcheck // it names the line
	}
	var b bytes.Buffer
	err := writeJSON(&b, n, 0)
	*t = bodyText(b.String())
	return err
}

func (y *httpTargetYAML) target() (*periodic.HTTPTarget, error) {
	if y == nil {
		return nil, nil
	}
	t := &periodic.HTTPTarget{
		URL: y.URL, Method: y.Method, Headers: y.Headers, Body: string(y.Body), Timeout: time.Duration(y.Timeout),
		Mode: periodic.HTTPMode(y.Mode), CompletionTimeout: time.Duration(y.CompletionTimeout),
		CompletionMethod: y.CompletionMethod,
	}
	for _, k := range y.Keys {
		t.Keys = append(t.Keys, periodic.HTTPKey{AccessKey: k.AK, Secret: k.SK})
	}
	if expect := []byte(y.Expect); len(expect) > 0 {
		if expect[0] != '[' {
			expect = append(append([]byte{'['}, expect...), ']') // one of them
		}
		if json.Unmarshal(expect, &t.Expect) != nil {
			return t, input.Invalid("http.expect", `is %s; want statuses from 100 to 599, such as 200, 2xx or [200, "202-204"]`, y.Expect)
		}
	}
	return t, nil
}

func httpTargetYAMLOf(t *periodic.HTTPTarget) *httpTargetYAML {
	if t == nil {
		return nil
	}
	y := &httpTargetYAML{
		URL: t.URL, Method: t.Method, Headers: secret.HideHeaders(t.Headers), Body: bodyText(t.Body), Timeout: duration(t.Timeout),
		Mode: string(t.Mode), CompletionTimeout: duration(t.CompletionTimeout),
		CompletionMethod: t.CompletionMethod,
	}
	if len(t.Expect) > 0 {
		y.Expect = jsonValueOf(t.Expect)
	}
	y.Keys = hiddenKeys(t.Keys)
	return y
}
