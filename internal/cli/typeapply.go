package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const typeApplyHelp = `Store task types as a YAML file says them.

The file has one type a document, or lists of types. It says all that holds for a type:
what it leaves out is taken away, but for paused. Types that are not in it stay. All of
it is checked before anything is written.

  code: email.send            # the name that tasks and handlers have
  name: E-mails
  category: mail              # of tasks that say none; a worker may serve a category
  timeout: 5m                 # of one execution; a number is minutes
  need_manual: true           # budget spent: Pending for a person, instead of Failure
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
                              # sealed with MSCHEDULER_SECRET_KEY, *** is the stored one

Also: description, max_lapses, max_errors_per_worker, ping_interval, worker_timeout,
retry.factor, retry.max_interval, retry.jitter, retry.local {count, interval}, paused,
and version: the file is refused when the stored type has another one.`

func (a *app) typeApply() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Store task types as a file says them", Args: noArgs, Long: typeApplyHelp,
		Example: "  mscheduler type apply -f types.yaml --dry-run\n  mscheduler type list -o yaml > types.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage("type apply wants -f FILE, or -f - for stdin; see: mscheduler type apply --help")
			}
			data, err := a.readFile(file)
			if err != nil {
				return err
			}
			specs, err := typeFile.read(file, data)
			if err == nil {
				err = a.checkTypes(specs)
			}
			if err != nil {
				return err
			}
			_, p, err := a.connectProducer(cmd.Context()) // the first write sets an empty database up
			if err != nil {
				return err
			}
			paused, _, err := p.Paused(cmd.Context())
			if err != nil {
				return err
			}
			box, err := secret.Parse("MSCHEDULER_SECRET_KEY", a.Env.SecretKey)
			if err != nil {
				return err
			}
			run := &applying{app: a, p: p, box: box, paused: paused, dry: dry}
			return run.all(cmd.Context(), specs)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file; - is stdin")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what it would change, and write nothing")
	return cmd
}

// checkTypes finds everything that is wrong with the types themselves.
func (a *app) checkTypes(specs []namedSpec[typeSpec]) error {
	box, err := secret.Parse("MSCHEDULER_SECRET_KEY", a.Env.SecretKey)
	if err != nil {
		return err
	}
	var errs []error
	seen := map[string]string{}
	for _, s := range specs {
		t := s.spec.taskType()
		err := input.TaskType(&t)
		if !secret.Hidden(t.Options.Callback) { // else the stored one is needed, which has its secrets already
			_, sealing := box.SealCallback("callback", t.Options.Callback)
			err = errors.Join(err, sealing)
		}
		if err != nil {
			errs = append(errs, usage("%s: type %s: %s", s.where, s.spec.Code, strings.ReplaceAll(inFile.Replace(err.Error()), "\n", "\n"+s.where+": type "+s.spec.Code+": ")))
		}
		if before, twice := seen[s.spec.Code]; twice {
			errs = append(errs, usage("%s: type %s is there before, at %s", s.where, s.spec.Code, before))
		}
		seen[s.spec.Code] = s.where
	}
	return errors.Join(errs...)
}

// inFile calls fields as files do.
var inFile = strings.NewReplacer("execution_timeout is", "timeout is")

// applying is one run of apply.
type applying struct {
	*app
	p      *producer.Producer
	box    *secret.Box
	paused []string
	dry    bool
}

// appliedView is what became of one type as JSON.
type appliedView struct {
	Code    string   `json:"code"`
	Result  string   `json:"result"` // created, changed, unchanged
	Version int64    `json:"version"`
	Changes []string `json:"changes"`
}

// all applies the types, when nothing speaks against any of them: not their stored versions,
// nor secrets of which there is nothing.
func (r *applying) all(ctx context.Context, specs []namedSpec[typeSpec]) error {
	look := *r
	look.dry = true
	var errs []error
	for _, s := range specs {
		if _, err := look.one(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.where, noType(err)))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	views := []appliedView{}
	for _, s := range specs {
		v, err := r.one(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.where, noType(err))
		}
		if !r.asJSON() {
			if err := r.print(v.text(r.dry)); err != nil {
				return err
			}
		}
		views = append(views, v)
	}
	if r.asJSON() {
		return r.printJSON(map[string]any{"types": views, "dry_run": r.dry})
	}
	return nil
}

func (v appliedView) text(dry bool) string {
	result := v.Result
	if dry && result != "unchanged" {
		result = "would be " + result
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s", v.Code, result)
	if v.Version != 0 {
		fmt.Fprintf(&b, " (version %d)", v.Version)
	}
	b.WriteByte('\n')
	for _, c := range v.Changes {
		b.WriteString("  " + c + "\n")
	}
	return b.String()
}

// one applies one type. Somebody who changes it at the same time makes it look again, unless
// the file names the version it is for.
func (r *applying) one(ctx context.Context, s namedSpec[typeSpec]) (appliedView, error) {
	for tries := 0; ; tries++ {
		v, err := r.try(ctx, s)
		if s.spec.Version == 0 && tries < 5 && errors.Is(err, producer.ErrTypeChanged) {
			continue
		}
		return v, err
	}
}

func (r *applying) try(ctx context.Context, s namedSpec[typeSpec]) (appliedView, error) {
	stored, err := r.p.Type(ctx, s.spec.Code)
	if errors.Is(err, producer.ErrNoType) {
		stored, err = nil, nil
	}
	if err != nil {
		return appliedView{}, err
	}
	t := s.spec.taskType()
	v := appliedView{Code: s.spec.Code, Result: "created", Changes: []string{}}
	var before *typeSpec
	if stored != nil {
		v.Result, v.Version, before = "changed", stored.Version, specOf(stored, r.paused)
	}
	if s.spec.Version != 0 && stored == nil {
		return v, fmt.Errorf("%w: %s; the file is for version %d of it", producer.ErrNoType, s.spec.Code, s.spec.Version)
	}
	if s.spec.Version != 0 && s.spec.Version != v.Version {
		return v, fmt.Errorf("%w: %s is at version %d, and the file is for %d", producer.ErrTypeChanged, s.spec.Code, v.Version, s.spec.Version)
	}
	after := specOf(&t, r.paused)
	if s.spec.Paused != nil {
		after.Paused = nil
		if *s.spec.Paused {
			after.Paused = s.spec.Paused
		}
	}
	diff, err := difference(before, after)
	if err != nil {
		return v, err
	}
	v.Changes = append(diff, givenSecrets("callback.security", callbackKeys(t.Options.Callback))...)
	if stored != nil {
		v.Changes = append(v.Changes, hiddenURLs("callback", stored.Options.Callback, t.Options.Callback)...)
	}
	if len(v.Changes) == 0 && stored != nil {
		v.Result, v.Changes = "unchanged", []string{}
		return v, nil
	}
	kept := t.Options.Callback
	if stored != nil {
		kept = secret.Keep(kept, stored.Options.Callback)
	}
	if _, err := r.box.SealCallback("callback", kept); err != nil {
		return v, usage("type %s: %w", s.spec.Code, err)
	}
	if r.dry {
		return v, nil
	}
	t.Version = v.Version
	put, err := r.p.PutType(ctx, t)
	if err != nil {
		return v, err
	}
	v.Version = put.Version
	return v, r.pause(ctx, s)
}

// pause pauses or resumes the type where the file says so and it is otherwise.
func (r *applying) pause(ctx context.Context, s namedSpec[typeSpec]) error {
	switch now := slices.Contains(r.paused, s.spec.Code); {
	case s.spec.Paused == nil || *s.spec.Paused == now:
		return nil
	case now:
		return r.p.Resume(ctx, s.spec.Code)
	default:
		return r.p.Pause(ctx, s.spec.Code)
	}
}

func callbackKeys(c *model.Callback) []model.CallbackKey {
	if c == nil || c.Security == nil {
		return nil
	}
	return c.Security.Keys
}

// hiddenURLs says which addresses a file changes where it is not to be seen: in what is not
// shown of them.
func hiddenURLs(path string, old, now *model.Callback) (changes []string) {
	now = secret.KeepURLs(now, old)
	compare := func(name string, old, now *model.CallbackTarget) {
		if old != nil && now != nil && old.URL != now.URL && safetext.URL(old.URL) == safetext.URL(now.URL) {
			changes = append(changes, "+ "+path+"."+name+".url: what is not shown of it")
		}
	}
	if old != nil && now != nil {
		compare("success", old.Success, now.Success)
		compare("error", old.Error, now.Error)
	}
	return changes
}

// givenSecrets says which secrets a file sets: they cannot be compared with sealed ones.
// What is not shown stays what it is.
func givenSecrets(path string, keys []model.CallbackKey) (changes []string) {
	for _, k := range keys {
		if k.Secret != safetext.Hidden {
			changes = append(changes, "+ "+path+": the secret of "+k.AccessKey)
		}
	}
	return changes
}
