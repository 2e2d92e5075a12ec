package lifecycle

import (
	"github.com/mscheduler/mscheduler/model"
)

// LabelAudience is where a worker that is restricted to that label finds the tasks of types
// that are claimed by it.
func LabelAudience(by model.ClaimBy, label string) string {
	return map[model.ClaimBy]string{model.ClaimByTenant: "t:", model.ClaimByCreator: "c:", model.ClaimByCategory: "g:"}[by] + label
}

func labelOf(t *model.Task, by model.ClaimBy) string {
	switch by {
	case model.ClaimByCreator:
		return t.Creator
	case model.ClaimByCategory:
		return t.Category
	default:
		return t.Tenant
	}
}
