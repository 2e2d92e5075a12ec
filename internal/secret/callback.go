package secret

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// MaxBytes of a callback's secret before it is sealed.
const MaxBytes = 500

var errNotShown = errors.New("is " + safetext.Hidden + ", which stands for a secret that is not shown; give the secret itself")

// SealCallback is the callback with its secrets sealed, to be stored; c is left as it is.
// An address of which a part is not there ([safetext.HidesPart]) is refused. field names the
// callback in errors. nil stays nil. See [Box.SealKeys].
func (b *Box) SealCallback(field string, c *model.Callback) (*model.Callback, error) {
	var errs []error
	for name, t := range targetsOf(c) {
		if safetext.HidesPart(t.URL) {
			errs = append(errs, input.Invalid(field+"."+name+".url", "has "+safetext.Hidden+" for a part that is not shown; give the whole address"))
		}
	}
	keys, err := b.SealKeys(field+".security.keys", keysOf(c))
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return withKeys(c, keys), nil
}

// SealKeys are the keys with their secrets sealed, to be stored; those given are left as
// they are. One that is sealed already, by a key of the box and for its access key, stays
// so. field names the list in errors, which are model.ErrInvalid: a secret that cannot be
// sealed because no key is set is one of them.
func (b *Box) SealKeys(field string, keys []model.CallbackKey) ([]model.CallbackKey, error) {
	out := slices.Clone(keys)
	var errs []error
	for i := range out {
		sealed, err := b.sealKey(out[i])
		if err != nil {
			errs = append(errs, input.Invalid(fmt.Sprintf("%s[%d].sk", field, i), "%v", err))
		}
		out[i].Secret = sealed
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func (b *Box) sealKey(k model.CallbackKey) (string, error) {
	switch {
	case k.Secret == safetext.Hidden:
		return "", errNotShown
	case b == nil:
		return "", fmt.Errorf("cannot be kept: %w", ErrNoKey)
	case Sealed(k.Secret):
		if _, err := b.Open(k.Secret, k.AccessKey); err != nil {
			return "", err
		}
		return k.Secret, nil
	case len(k.Secret) > MaxBytes:
		return "", fmt.Errorf("has %d bytes; at most %d are allowed", len(k.Secret), MaxBytes)
	}
	if err := callback.Sign(http.Header{}, "", time.Time{}, nil, callback.Key(k)); err != nil {
		return "", fmt.Errorf("cannot be used: %w", err)
	}
	return b.Seal(k.Secret, k.AccessKey)
}

// Hidden says whether a secret of the callback is [safetext.Hidden], or a part of an
// address.
func Hidden(c *model.Callback) bool {
	for _, t := range targetsOf(c) {
		if safetext.HidesPart(t.URL) {
			return true
		}
	}
	return slices.ContainsFunc(keysOf(c), hidden)
}

func hidden(k model.CallbackKey) bool { return k.Secret == safetext.Hidden }

// Keep is the callback with the secrets that are [safetext.Hidden] as the stored one
// has them for the same access keys, and with its addresses where the given ones are what
// is shown of those; c is left as it is.
func Keep(c, stored *model.Callback) *model.Callback {
	if !Hidden(c) {
		return c
	}
	return withKeys(KeepURLs(c, stored), KeepKeys(keysOf(c), keysOf(stored)))
}

// KeepURLs is [Keep] for the addresses alone.
func KeepURLs(c, stored *model.Callback) *model.Callback {
	was := targetsOf(stored)
	return withURLs(c, func(name, url string) string {
		if s := was[name]; s != nil && safetext.HidesPart(url) && url == safetext.URL(s.URL) {
			return s.URL
		}
		return url
	})
}

// KeepKeys is [Keep] for keys.
func KeepKeys(keys, stored []model.CallbackKey) []model.CallbackKey {
	out := slices.Clone(keys)
	for i, k := range out {
		for _, s := range stored {
			if hidden(k) && s.AccessKey == k.AccessKey {
				out[i] = s
			}
		}
	}
	return out
}

func keysOf(c *model.Callback) []model.CallbackKey {
	if c == nil || c.Security == nil {
		return nil
	}
	return c.Security.Keys
}

// targetsOf are the callback's targets by their names in documents.
func targetsOf(c *model.Callback) map[string]*model.CallbackTarget {
	out := map[string]*model.CallbackTarget{}
	if c != nil && c.Success != nil {
		out["success"] = c.Success
	}
	if c != nil && c.Error != nil {
		out["error"] = c.Error
	}
	return out
}

// withURLs is a callback with other addresses; c is left as it is.
func withURLs(c *model.Callback, change func(name, url string) string) *model.Callback {
	targets := targetsOf(c)
	if len(targets) == 0 {
		return c
	}
	out := *c
	for name, t := range targets {
		changed := *t
		changed.URL = change(name, t.URL)
		if name == "success" {
			out.Success = &changed
		} else {
			out.Error = &changed
		}
	}
	return &out
}

// withKeys is a callback with others in the place of its keys; c is left as it is.
func withKeys(c *model.Callback, keys []model.CallbackKey) *model.Callback {
	if len(keysOf(c)) == 0 {
		return c
	}
	out, security := *c, *c.Security
	out.Security, security.Keys = &security, keys
	return &out
}

// CallbackKeys opens the keys that a callback is signed with; none where it is not.
func (b *Box) CallbackKeys(s *model.CallbackSecurity) ([]callback.Key, error) {
	if s == nil || s.Type != model.SecurityAKSK {
		return nil, nil
	}
	keys := make([]callback.Key, 0, len(s.Keys))
	for _, k := range s.Keys {
		plain, err := b.Open(k.Secret, k.AccessKey)
		if err != nil {
			return nil, fmt.Errorf("that of the access key %s: %w", k.AccessKey, err)
		}
		keys = append(keys, callback.Key{AccessKey: k.AccessKey, Secret: plain})
	}
	return keys, nil
}
