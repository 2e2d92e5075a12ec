package periodic

import (
	"context"
	"slices"

	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// begun reads which active runs of the rules a worker has begun, if that makes a
// difference. A rule that could not be read is nil.
func (p *Periodic) begun(ctx context.Context, rules []*schedule.Rule) (map[string]bool, error) {
	runs := map[string]string{} // by their tasks
	var ids []string
	for _, r := range rules {
		if r == nil {
			continue
		}
		for _, a := range r.Active {
			if tickplan.Judged(r, a) {
				id := model.TaskID(r.Tenant, a.TaskType, a.ID)
				runs[id] = a.ID
				ids = append(ids, id)
			}
		}
	}
	begun := map[string]bool{}
	for some := range slices.Chunk(ids, perInsert) {
		executing, err := p.store.Tasks.Executing(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, id := range executing {
			begun[runs[id]] = true
		}
	}
	return begun, nil
}
