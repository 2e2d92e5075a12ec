package secret

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// mapHeaders returns the headers with other credentials.
func mapHeaders(headers map[string]string, change func(name, value string) (string, error)) (map[string]string, error) {
	out := maps.Clone(headers)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if safetext.IsCredential(name) {
			value, err := change(name, out[name])
			out[name], errs = value, append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// HideHeaders returns the headers with [safetext.Hidden] for their credentials.
func HideHeaders(headers map[string]string) map[string]string {
	out, _ := mapHeaders(headers, func(string, string) (string, error) { return safetext.Hidden, nil })
	return out
}

// GivenHeaders names the headers whose credentials are not the stored ones, see [Box.KeepHeaders].
func GivenHeaders(kept, stored map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if was, there := storedHeader(name, stored); safetext.IsCredential(name) && (!there || kept[name] != was) {
			names = append(names, name)
		}
	}
	return names
}

// KeepHeaders returns the headers with the stored credentials where they are hidden or given as they
// are. other says what would get the hidden ones instead, such as "a new host"; "" = nothing. Then they
// must be given: whoever changes where a credential goes must know it. field names the headers in
// errors, which are model.ErrInvalid.
func (b *Box) KeepHeaders(field string, headers, stored map[string]string, other string) (map[string]string, error) {
	return mapHeaders(headers, func(name, value string) (string, error) {
		if value == safetext.Hidden && other != "" {
			return "", input.Invalid(field+"."+name, "is %q: give the secret itself for %s", value, other)
		}
		was, there := storedHeader(name, stored)
		if !there {
			return value, nil
		}
		return b.kept(value, was, http.CanonicalHeaderKey(name)), nil
	})
}

func storedHeader(name string, stored map[string]string) (value string, there bool) {
	for n, v := range stored {
		if http.CanonicalHeaderKey(n) == http.CanonicalHeaderKey(name) {
			return v, true
		}
	}
	return "", false
}

// SealHeaders returns the headers with their credentials sealed, ready to be stored. A credential
// that is sealed already stays so, if a key of the box opens it. A box without a key leaves the
// others as they are. field names the headers in errors, which are model.ErrInvalid.
func (b *Box) SealHeaders(field string, headers map[string]string) (map[string]string, error) {
	return mapHeaders(headers, func(name, value string) (string, error) {
		if b == nil && value != safetext.Hidden && !Sealed(value) {
			return value, nil
		}
		sealed, err := b.reseal(value, http.CanonicalHeaderKey(name))
		if err != nil {
			return "", input.Invalid(field+"."+name, "%v", err)
		}
		return sealed, nil
	})
}

// OpenHeaders returns the headers with their credentials opened.
func (b *Box) OpenHeaders(headers map[string]string) (map[string]string, error) {
	return mapHeaders(headers, func(name, value string) (string, error) {
		if !Sealed(value) {
			return value, nil
		}
		plain, err := b.Open(value, http.CanonicalHeaderKey(name))
		if err != nil {
			return "", fmt.Errorf("the header %s: %w", name, err)
		}
		return plain, nil
	})
}
