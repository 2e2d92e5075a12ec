package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const typeApplyHelp = `Store the settings of task types that a YAML or JSON file describes.

The file has one type per document, or lists of types. It describes a type completely: settings
that it leaves out are removed, except paused. Types that are not in the file stay. All of the
file is checked before anything is written.

  code: email.send            # the name that tasks and handlers have
  name: E-mails
  category: mail              # of tasks without one; a worker may serve a category
  timeout: 5m                 # of one execution; none = no limit
  need_manual: true           # when all retries are spent: Pending for a person, not Failure
  retention: 7d
  retry:
    strategy: sequence        # none, fixed (or fixed_period), sequence, exponential
    sequence: [10s, 1m, 10m]  # then the last; interval is for fixed and exponential
    max_errors: 5
  claim_by: tenant            # or creator, category: for workers that take only some
  max_running: 20             # over all workers
  rate_limit: {count: 100, per: 1s}
  key_limit: {max_running: 1} # for the tasks of each limit_key
  callback:
    success: {url: "https://example.org/done", method: POST}
    error: {url: "https://example.org/failed"}
    security: {type: none}    # or {type: aksk, ak: KEY, sk: SECRET}: signed; the secret is
                              # sealed with MSCHEDULER_SECRET_KEY; *** is the stored one

Also: description, max_lapses, max_errors_per_worker, ping_interval, worker_timeout,
retry.factor, retry.max_interval, retry.jitter, retry.local {count, interval}, paused,
and version: the file is refused if the stored type has another version.

Numbers without a unit are minutes in timeout, and seconds in retry, ping_interval, worker_timeout
and per. Durations may also be written under their stored names: execution_timeout_ms,
retention_ms, ...`

func (a *app) typeApply() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Store the settings of task types from a file", Args: noArgs, Long: typeApplyHelp,
		Example: "  mscheduler type apply -f types.yaml --dry-run\n  mscheduler type list -o yaml > types.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			box, err := secret.Parse("MSCHEDULER_SECRET_KEY", a.Env.SecretKey)
			if err != nil {
				return err
			}
			run := &applyingTypes{box: box}
			var types applier[form.Type, model.TaskType] = run
			docs, err := readDocs[form.Type](a, f.file, "a task type", "task types")
			if err == nil {
				err = checkDocs(types, docs)
			}
			if err != nil {
				return err
			}
			c, err := a.connect(cmd.Context()) // the first write sets an empty database up
			if err != nil {
				return err
			}
			run.p = c.admin
			if run.paused, _, err = run.p.Paused(cmd.Context()); err != nil {
				return err
			}
			return applyDocs(cmd.Context(), a, types, docs, "types", f.dry)
		},
	}
	f.register(cmd, "show the changes and write nothing")
	return cmd
}

// applyingTypes is one run of `type apply`.
type applyingTypes struct {
	p      *admin.Admin
	box    *secret.Box
	paused []string
}

type typeChange = change[form.Type, model.TaskType]

func (*applyingTypes) id(t *form.Type) string { return t.Code }
func (*applyingTypes) thing(t *form.Type) audit.Thing {
	return audit.Thing{Kind: audit.Type, ID: t.Code}
}
func (*applyingTypes) wanted(t *form.Type) int64 { return t.Version }
func (*applyingTypes) changed() error            { return store.ErrTypeChanged }

func (r *applyingTypes) check(f *form.Type) error {
	t, err := f.Model()
	err = errors.Join(err, input.TaskType(&t))
	if !secret.Hidden(t.Options.Callback) { // else the stored one is needed, which has its secrets already
		_, sealing := r.box.SealCallback("callback", t.Options.Callback)
		err = errors.Join(err, sealing)
	}
	return err
}

func (r *applyingTypes) load(ctx context.Context, f *form.Type) (*model.TaskType, int64, error) {
	t, err := r.p.Type(ctx, f.Code)
	switch {
	case err == nil:
		return t, t.Version, nil
	case errors.Is(err, store.ErrNoType) && f.Version == 0:
		return nil, 0, nil
	case errors.Is(err, store.ErrNoType):
		return nil, 0, fmt.Errorf("%w; the file is for version %d of it", err, f.Version)
	}
	return nil, 0, err
}

func (r *applyingTypes) compare(_ context.Context, c *typeChange) error {
	t, err := c.Form.Model()
	if err != nil {
		return err
	}
	paused := slices.Contains(r.paused, c.Form.Code)
	after := form.TypeOf(&t, c.Form.Paused != nil && *c.Form.Paused || c.Form.Paused == nil && paused)
	var before *form.Type
	var old *model.Callback
	if c.stored != nil {
		before, old = form.TypeOf(c.stored, paused), c.stored.Options.Callback
		before.Version = 0
	}
	after.Version = 0
	kept := r.box.Keep(t.Options.Callback, old)
	c.lines = append(form.Changes(before, after), form.SecretChanges("callback", old, kept)...)
	_, err = r.box.SealCallback("callback", kept)
	return err
}

func (r *applyingTypes) write(ctx context.Context, c *typeChange) (*model.TaskType, error) {
	t, err := c.Form.Model()
	if err != nil {
		return nil, err
	}
	t.Version = c.version
	put, err := r.p.PutType(ctx, t)
	if err != nil {
		return nil, err
	}
	switch now := slices.Contains(r.paused, t.Code); {
	case c.Form.Paused == nil || *c.Form.Paused == now:
		return put, nil
	case now:
		return put, r.p.Resume(ctx, t.Code)
	default:
		return put, r.p.Pause(ctx, t.Code)
	}
}

// appliedType is what became of one type as JSON.
type appliedType struct {
	Code    string `json:"code"`
	Version int64  `json:"version"`
	outcome
}

func (r *applyingTypes) show(_ context.Context, c *typeChange, after *model.TaskType, o outcome) (view any, line, more string, err error) {
	v := appliedType{Code: c.Form.Code, outcome: o}
	if after != nil {
		v.Version, line = after.Version, fmt.Sprintf(" (version %d)", after.Version)
	}
	return v, line, "", nil
}
