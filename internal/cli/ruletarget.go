package cli

import (
	"encoding/json"
	"time"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
)

// httpTargetYAML is what a rule calls at each tick, as a file says it.
type httpTargetYAML struct {
	URL             string            `yaml:"url"`
	Method          string            `yaml:"method,omitempty"`
	Headers         map[string]string `yaml:"headers,omitempty"`
	Body            string            `yaml:"body,omitempty"`
	Timeout         duration          `yaml:"timeout,omitempty"`
	Expect          jsonValue         `yaml:"expect,omitempty"` // 200, 2xx, 200-204
	Mode            string            `yaml:"mode,omitempty"`   // SYNC, ASYNC
	CallbackTimeout duration          `yaml:"callback_timeout,omitempty"`
	Keys            []keyYAML         `yaml:"keys,omitempty"` // sign the call
}

func (y *httpTargetYAML) target() (*periodic.HTTPTarget, error) {
	if y == nil {
		return nil, nil
	}
	t := &periodic.HTTPTarget{
		URL: y.URL, Method: y.Method, Headers: y.Headers, Body: y.Body, Timeout: time.Duration(y.Timeout),
		Mode: periodic.HTTPMode(y.Mode), CallbackTimeout: time.Duration(y.CallbackTimeout),
	}
	for _, k := range y.Keys {
		t.Keys = append(t.Keys, periodic.HTTPKey{AccessKey: k.AK, Secret: k.SK})
	}
	if len(y.Expect) > 0 {
		if err := json.Unmarshal([]byte(y.Expect), &t.Expect); err != nil {
			return t, model.Invalid("http.expect", `wants a list of statuses such as [200, "2xx", "200-204"]: %v`, err)
		}
	}
	return t, nil
}

func httpTargetYAMLOf(t *periodic.HTTPTarget) *httpTargetYAML {
	if t == nil {
		return nil
	}
	y := &httpTargetYAML{
		URL: t.URL, Method: t.Method, Headers: t.Headers, Body: t.Body, Timeout: duration(t.Timeout),
		Mode: string(t.Mode), CallbackTimeout: duration(t.CallbackTimeout),
	}
	if len(t.Expect) > 0 {
		y.Expect = jsonValueOf(t.Expect)
	}
	y.Keys = hiddenKeys(t.Keys)
	return y
}
