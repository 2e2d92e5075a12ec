package query

import (
	"slices"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// Inside this package, what cannot go on panics with the error MongoDB has for
// it, and the exported function that was called returns it: so the parsers and
// the operators read as what they accept.

// fail ends what the package is doing with an error.
func fail(code int32, format string, args ...any) { panic(mongoerr.New(code, format, args...)) }

// refuse ends it because this server lacks a feature that MongoDB has.
func refuse(feature string) { panic(mongoerr.NotImplemented(feature)) }

// check fails unless ok.
func check(ok bool, code int32, format string, args ...any) {
	if !ok {
		fail(code, format, args...)
	}
}

// need is check with the code BadValue.
func need(ok bool, format string, args ...any) { check(ok, mongoerr.BadValue, format, args...) }

// parses is check with the code FailedToParse.
func parses(ok bool, format string, args ...any) { check(ok, mongoerr.FailedToParse, format, args...) }

// entry finds what stands for name in a table of operators or the like. Names in
// lacking are MongoDB's, but refused; unknown is called for all others.
func entry[T any](table map[string]T, name string, lacking []string, what string, unknown func()) T {
	t, ok := table[name]
	if !ok {
		if slices.Contains(lacking, name) {
			refuse(what + name)
		}
		unknown()
	}
	return t
}

// catch, deferred by an exported function, turns the panic of fail into err.
func catch(err *error) {
	switch e := recover().(type) {
	case nil:
	case *mongoerr.Error:
		*err = e
	default:
		panic(e)
	}
}
