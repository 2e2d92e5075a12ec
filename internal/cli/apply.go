package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/form"
)

// applier is what `apply` has to know of one kind of documents. F is how a file says one, S
// how it is stored.
type applier[F, S any] interface {
	// id is what is unique among the documents, as people name it.
	id(*F) string
	// thing is the document for the audit.
	thing(*F) audit.Thing
	// check finds what is wrong with a document by itself.
	check(*F) error
	// load reads what is stored of the document, and its version; nil = nothing.
	load(context.Context, *F) (stored *S, version int64, err error)
	// wanted is the version that the document is for; 0 = any.
	wanted(*F) int64
	// changed is the error of a write that met another version than the one that was read.
	changed() error
	// compare says what the document changes, a line for each field, and refuses what could
	// not be written.
	compare(context.Context, *change[F, S]) error
	// write stores the document, and returns what is stored then.
	write(context.Context, *change[F, S]) (*S, error)
	// show is the outcome as JSON, and for people: the end of its line, and what follows the
	// changes. after is what is stored then, nil where a dry run would create it.
	show(ctx context.Context, c *change[F, S], after *S, o outcome) (view any, line, more string, err error)
}

// change is what a document of a file does to the stored one.
type change[F, S any] struct {
	form.Doc[F]
	stored  *S // nil = it is created
	version int64
	lines   []string // for people; none = nothing changes
}

// outcome is what became of a document.
type outcome struct {
	Result  string   `json:"result"` // created, changed, unchanged
	Changes []string `json:"changes"`
}

// applyFlags are those of every `apply`.
type applyFlags struct {
	file string
	dry  bool
}

func (f *applyFlags) register(cmd *cobra.Command, dryHelp string) {
	fileFlag(cmd, &f.file)
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, dryHelp)
}

// fileFlag adds the file that a command reads by [readDocs].
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "", "the file; - is stdin")
}

// readDocs reads the file of a command; thing and things are what its documents are called.
func readDocs[F any](a *app, file, thing, things string) ([]form.Doc[F], error) {
	if file == "" {
		return nil, usage("no file is named; want -f FILE, or -f - for stdin")
	}
	data, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	return form.Read[F](fileName(file), data, thing, things)
}

// checkDocs finds everything that is wrong with the documents themselves.
func checkDocs[F, S any](k applier[F, S], docs []form.Doc[F]) error {
	var errs []error
	seen := map[string]string{}
	for _, d := range docs {
		errs = append(errs, d.Locate(k.check(d.Form)))
		id := k.id(d.Form)
		if before, twice := seen[id]; twice {
			errs = append(errs, usage("%s: %s is defined twice, first at %s", d.Where(), id, before))
		}
		seen[id] = d.Where()
	}
	return errors.Join(errs...)
}

// applyDocs stores the documents, when nothing speaks against any of them.
func applyDocs[F, S any](ctx context.Context, a *app, k applier[F, S], docs []form.Doc[F], things string, dry bool) error {
	changes := make([]*change[F, S], len(docs))
	var errs []error
	for i, d := range docs {
		var err error
		changes[i], err = compared(ctx, k, d)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	views := make([]any, len(docs))
	for i, c := range changes {
		o := outcome{"changed", c.lines}
		if c.stored == nil {
			o.Result = "created"
		} else if len(c.lines) == 0 {
			o = outcome{"unchanged", []string{}}
		}
		after := c.stored
		var err error
		if !dry && len(c.lines) > 0 {
			a.touches(ctx, k.thing(c.Form))
			if after, err = written(ctx, k, c); err != nil {
				return a.partly(err, i, map[string]any{things: views[:i], "dry_run": dry})
			}
		}
		view, line, more, err := k.show(ctx, c, after, o)
		if err != nil {
			return a.partly(c.Locate(err), i, map[string]any{things: views[:i], "dry_run": dry})
		}
		if views[i] = view; a.asJSON() {
			continue
		}
		result := o.Result
		if dry && result != "unchanged" {
			result = "would be " + result
		}
		text := k.id(c.Form) + "  " + result + line + "\n"
		if len(o.Changes) > 0 {
			text += "  " + strings.Join(o.Changes, "\n  ") + "\n"
		}
		if err := a.print(text + more); err != nil {
			return err
		}
	}
	if a.asJSON() {
		return a.printJSON(map[string]any{things: views, "dry_run": dry})
	}
	return nil
}

// compared finds what a document changes.
func compared[F, S any](ctx context.Context, k applier[F, S], d form.Doc[F]) (*change[F, S], error) {
	c := &change[F, S]{Doc: d}
	var err error
	if c.stored, c.version, err = k.load(ctx, d.Form); err == nil {
		if v := k.wanted(d.Form); v != 0 && v != c.version {
			err = fmt.Errorf("%w: %s is at version %d, and the file is for %d", k.changed(), k.id(d.Form), c.version, v)
		} else {
			err = k.compare(ctx, c)
		}
	}
	return c, d.Locate(err)
}

// written stores a document. Somebody who changes it at the same time makes it look again,
// unless the file names the version that it is for.
func written[F, S any](ctx context.Context, k applier[F, S], c *change[F, S]) (*S, error) {
	const tries = 5
	for n := 0; ; n++ {
		after, err := k.write(ctx, c)
		if err == nil {
			return after, nil
		}
		if k.wanted(c.Form) != 0 || n == tries || !errors.Is(err, k.changed()) {
			return nil, c.Locate(err)
		}
		if c, err = compared(ctx, k, c.Doc); err != nil {
			return nil, err
		}
	}
}
