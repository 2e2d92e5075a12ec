package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/secret"
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
	Keys            []httpKeyYAML     `yaml:"keys,omitempty"`
}

// httpKeyYAML signs the call. A file keeps no plain secret: it has them sealed, as show
// writes them.
type httpKeyYAML struct {
	AK string `yaml:"ak"`
	SK string `yaml:"sk"`
}

func (y *httpTargetYAML) target() (*periodic.HTTPTarget, error) {
	if y == nil {
		return nil, nil
	}
	t := &periodic.HTTPTarget{
		URL: y.URL, Method: y.Method, Headers: y.Headers, Body: y.Body, Timeout: time.Duration(y.Timeout),
		Mode: periodic.HTTPMode(y.Mode), CallbackTimeout: time.Duration(y.CallbackTimeout),
	}
	var errs []error
	if len(y.Expect) > 0 {
		if err := json.Unmarshal([]byte(y.Expect), &t.Expect); err != nil {
			errs = append(errs, model.Invalid("http.expect", `wants a list of statuses such as [200, "2xx", "200-204"]: %v`, err))
		}
	}
	for i, k := range y.Keys {
		if !secret.Sealed(k.SK) {
			errs = append(errs, model.Invalid(fmt.Sprintf("http.keys[%d].sk", i), "is not sealed, and a file keeps no plain secrets; a rule gets them by periodic.Spec"))
		}
		t.Keys = append(t.Keys, periodic.HTTPKey{AccessKey: k.AK, Secret: k.SK})
	}
	return t, errors.Join(errs...)
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
	for _, k := range t.Keys {
		y.Keys = append(y.Keys, httpKeyYAML{AK: k.AccessKey, SK: k.Secret})
	}
	return y
}
