package store

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// What people search tasks by and no index serves: a page looks at a bounded number of tasks for it, and its
// place is behind the last one that it looked at.

const (
	mostArgs  = 10
	mostBytes = 400 // of a search
)

// CheckSearch is [Filter.Check] for the conditions of a search alone.
func (f Filter) CheckSearch() error {
	if len(f.Key) > mostBytes || !safetext.IsText(f.Key) {
		return input.Invalid("key", "must be at most %d bytes of valid UTF-8 without a NUL byte", mostBytes)
	}
	if len(f.Error) > mostBytes || !safetext.IsText(f.Error) {
		return input.Invalid("error", "must be at most %d bytes of valid UTF-8 without a NUL byte", mostBytes)
	}
	if len(f.Args) > mostArgs {
		return input.Invalid("arg", "is given %d times; at most %d are allowed", len(f.Args), mostArgs)
	}
	for _, arg := range f.Args {
		path, _, found := strings.Cut(arg, "=")
		parts := strings.Split(path, ".")
		switch {
		case len(arg) > mostBytes || !safetext.IsText(arg):
			return input.Invalid("arg", "must be at most %d bytes of valid UTF-8 without a NUL byte", mostBytes)
		case !found:
			return input.Invalid("arg", "is %q; want PATH=VALUE, such as order.id=17", safetext.Clip(arg, 120))
		case slices.ContainsFunc(parts, func(part string) bool { return part == "" || part[0] == '$' }):
			return input.Invalid("arg", "has the path %q; want names of fields between dots, none of which begins with $", safetext.Clip(path, 120))
		case slices.ContainsFunc(parts, func(part string) bool { return part == "sk" || safetext.IsCredential(part) }):
			return input.Invalid("arg", "has the path %q; secrets cannot be searched for", safetext.Clip(path, 120))
		}
	}
	return nil
}

// searched reports whether the filter has conditions of a search.
func (f Filter) searched() bool { return f.Error != "" || len(f.Args) > 0 }

// search adds the conditions to a query. Texts are taken as they are: nothing in them is a pattern or an operator.
func (f Filter) search(q bson.D) bson.D {
	if f.Error != "" {
		q = append(q, d("error_info", bson.Regex{Pattern: regexp.QuoteMeta(f.Error), Options: "i"}))
	}
	for _, arg := range f.Args {
		path, value, _ := strings.Cut(arg, "=")
		values := bson.A{value} // a text, and what else is written like that
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			values = append(values, n)
		} else if n, err := strconv.ParseFloat(value, 64); err == nil && !math.IsInf(n, 0) && !math.IsNaN(n) {
			values = append(values, n)
		} else if value == "true" || value == "false" {
			values = append(values, value == "true")
		}
		q = append(q, d("args."+path, in(values)))
	}
	return q
}
