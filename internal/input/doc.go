// Package input checks what callers give: names, keys, ids, options, types, arguments.
//
// Each check returns an error that names the field, its value and what is allowed, and
// that is model.ErrInvalid. Nothing is written before the checks have passed.
package input
