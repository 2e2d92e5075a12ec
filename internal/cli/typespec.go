package cli

import (
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// typeSpec is a task type as a file of `type apply` says it. What is absent is not said.
type typeSpec struct {
	Code        string `yaml:"code"`
	Name        string `yaml:"name,omitempty"`
	Category    string `yaml:"category,omitempty"`
	Description string `yaml:"description,omitempty"`
	Version     int64  `yaml:"version,omitempty"` // of the stored type; 0 = whichever
	Paused      *bool  `yaml:"paused,omitempty"`

	layeredYAML `yaml:",inline"`

	ClaimBy    string     `yaml:"claim_by,omitempty"`
	MaxRunning int        `yaml:"max_running,omitempty"`
	RateLimit  *rateYAML  `yaml:"rate_limit,omitempty"`
	KeyLimit   *limitYAML `yaml:"key_limit,omitempty"`
}

type rateYAML struct {
	Count int       `yaml:"count"`
	Per   inSeconds `yaml:"per"`
}

type limitYAML struct {
	MaxRunning int       `yaml:"max_running,omitempty"`
	RateLimit  *rateYAML `yaml:"rate_limit,omitempty"`
}

// taskType is the type that the spec says.
func (s *typeSpec) taskType() model.TaskType {
	t := model.TaskType{
		Code: s.Code, Name: s.Name, Category: s.Category, Description: s.Description, Version: s.Version,
		ClaimBy: model.ClaimBy(s.ClaimBy), MaxRunning: s.MaxRunning, RateLimit: s.RateLimit.limit(),
		Options: s.options(),
	}
	if s.KeyLimit != nil {
		t.KeyLimit = &model.KeyLimit{MaxRunning: s.KeyLimit.MaxRunning, RateLimit: s.KeyLimit.RateLimit.limit()}
	}
	return t
}

func (r *rateYAML) limit() *model.RateLimit {
	if r == nil {
		return nil
	}
	return &model.RateLimit{Count: r.Count, Per: time.Duration(r.Per)}
}

// specOf is a stored type as a file would say it. Secrets are not shown.
func specOf(t *model.TaskType, paused []string) *typeSpec {
	s := &typeSpec{
		Code: t.Code, Name: t.Name, Category: t.Category, Description: t.Description, Version: t.Version,
		layeredYAML: layeredOf(&t.Options), ClaimBy: string(t.ClaimBy), MaxRunning: t.MaxRunning, RateLimit: rateOf(t.RateLimit),
	}
	if t.KeyLimit != nil {
		s.KeyLimit = &limitYAML{MaxRunning: t.KeyLimit.MaxRunning, RateLimit: rateOf(t.KeyLimit.RateLimit)}
	}
	if slices.Contains(paused, t.Code) {
		s.Paused = new(true)
	}
	return s
}

func rateOf(r *model.RateLimit) *rateYAML {
	if r == nil {
		return nil
	}
	return &rateYAML{Count: r.Count, Per: inSeconds(r.Per)}
}
