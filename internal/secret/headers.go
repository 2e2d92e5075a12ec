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

// secretHeaders are those of a call whose values are credentials.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"}

func secretHeader(name string) bool {
	return slices.Contains(secretHeaders, http.CanonicalHeaderKey(name))
}

// HideHeaders are the headers with [safetext.Hidden] for the values that are credentials;
// those given are left as they are.
func HideHeaders(headers map[string]string) map[string]string {
	out := maps.Clone(headers)
	for name := range out {
		if secretHeader(name) {
			out[name] = safetext.Hidden
		}
	}
	return out
}

// GivenHeaders names the headers whose credentials are said, and are not
// [safetext.Hidden].
func GivenHeaders(headers map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if secretHeader(name) && headers[name] != safetext.Hidden {
			names = append(names, name)
		}
	}
	return names
}

// KeepHeaders are the headers with the credentials that are [safetext.Hidden] as the
// stored ones have them; those given are left as they are.
func KeepHeaders(headers, stored map[string]string) map[string]string {
	out := maps.Clone(headers)
	for name, value := range out {
		if !secretHeader(name) || value != safetext.Hidden {
			continue
		}
		for other, kept := range stored {
			if http.CanonicalHeaderKey(other) == http.CanonicalHeaderKey(name) {
				out[name] = kept
			}
		}
	}
	return out
}

// SealHeaders are the headers with their credentials sealed, to be stored; those given are
// left as they are. One that is sealed already, by a key of the box, stays so; without a key
// all stay what they are. field names the headers in errors, which are model.ErrInvalid.
func (b *Box) SealHeaders(field string, headers map[string]string) (map[string]string, error) {
	out := maps.Clone(headers)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if !secretHeader(name) {
			continue
		}
		sealed, err := b.sealHeader(http.CanonicalHeaderKey(name), out[name])
		if err != nil {
			errs = append(errs, input.Invalid(field+"."+name, "%v", err))
		}
		out[name] = sealed
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func (b *Box) sealHeader(name, value string) (string, error) {
	switch {
	case value == safetext.Hidden:
		return "", errNotShown
	case Sealed(value):
		_, err := b.Open(value, name)
		return value, err
	case b == nil:
		return value, nil
	default:
		return b.Seal(value, name)
	}
}

// OpenHeaders are the headers as a call has them.
func (b *Box) OpenHeaders(headers map[string]string) (map[string]string, error) {
	out := maps.Clone(headers)
	for name, value := range out {
		if !secretHeader(name) || !Sealed(value) {
			continue
		}
		plain, err := b.Open(value, http.CanonicalHeaderKey(name))
		if err != nil {
			return nil, fmt.Errorf("the header %s: %w", name, err)
		}
		out[name] = plain
	}
	return out, nil
}
