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

// maxBytes of a callback's secret before it is sealed.
const maxBytes = 500

// SealCallback returns the callback with its secrets sealed, ready to be stored; nil for nil. It
// refuses a URL with a hidden part ([safetext.HidesPart]). field names the callback in errors, see
// [Box.SealKeys]. Here and below the arguments are left unchanged.
func (b *Box) SealCallback(field string, c *model.Callback) (*model.Callback, error) {
	var errs []error
	for name, url := range urlsOf(c) {
		errs = append(errs, WholeURL(field+"."+name+".url", url))
	}
	keys, err := b.SealKeys(field+".security.keys", keysOf(c))
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return withKeys(c, keys), nil
}

// WholeURL refuses a URL with a hidden part ([safetext.HidesPart]): nothing is stored that it could stand for.
func WholeURL(field, url string) error {
	if safetext.HidesPart(url) {
		return input.Invalid(field, "has "+safetext.Hidden+" for a part that is not shown; give the whole address")
	}
	return nil
}

// SealKeys returns the keys with their secrets sealed, ready to be stored. A secret that is sealed
// already stays so, if a key of the box opens it for its access key. field names the list in
// errors, which are model.ErrInvalid; a box without a key is one of them.
func (b *Box) SealKeys(field string, keys []callback.Key) ([]callback.Key, error) {
	var errs []error
	out := mapKeys(keys, func(i int, k callback.Key) string {
		sealed, err := b.sealKey(k)
		if err != nil {
			errs = append(errs, input.Invalid(fmt.Sprintf("%s[%d].sk", field, i), "%v", err))
		}
		return sealed
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func (b *Box) sealKey(k callback.Key) (string, error) {
	switch {
	case hidden(k) || b != nil && Sealed(k.Secret):
		return b.reseal(k.Secret, k.AccessKey)
	case b == nil:
		return "", fmt.Errorf("cannot be stored: %w", ErrNoKey)
	case len(k.Secret) > maxBytes:
		return "", fmt.Errorf("has %d bytes; at most %d are allowed", len(k.Secret), maxBytes)
	}
	if err := callback.Sign(http.Header{}, "", time.Time{}, nil, k); err != nil {
		return "", fmt.Errorf("cannot be used: %w", err)
	}
	return b.reseal(k.Secret, k.AccessKey)
}

// OpenKeys opens the keys that a call is signed with.
func (b *Box) OpenKeys(keys []callback.Key) ([]callback.Key, error) {
	out := make([]callback.Key, len(keys))
	for i, k := range keys {
		plain, err := b.Open(k.Secret, k.AccessKey)
		if err != nil {
			return nil, fmt.Errorf("the secret of access key %s: %w", k.AccessKey, err)
		}
		out[i] = callback.Key{AccessKey: k.AccessKey, Secret: plain}
	}
	return out, nil
}

// HideCallback returns the callback with [safetext.Hidden] for its secrets and its URLs as they
// are shown.
func HideCallback(c *model.Callback) *model.Callback {
	shown := withURLs(c, func(_, url string) string { return safetext.URL(url) })
	return withKeys(shown, HideKeys(keysOf(c)))
}

// HideKeys returns the keys with [safetext.Hidden] for their secrets.
func HideKeys(keys []callback.Key) []callback.Key {
	return mapKeys(keys, func(int, callback.Key) string { return safetext.Hidden })
}

// Hidden reports whether a secret of the callback, or a part of its URLs, is [safetext.Hidden].
func Hidden(c *model.Callback) bool {
	for _, url := range urlsOf(c) {
		if safetext.HidesPart(url) {
			return true
		}
	}
	return slices.ContainsFunc(keysOf(c), hidden)
}

func hidden(k callback.Key) bool { return k.Secret == safetext.Hidden }

// Keep returns the callback with the stored secrets and URLs where they are hidden or given as they
// are: secrets by their access key, URLs where the given one is what is shown of the stored one.
func (b *Box) Keep(c, stored *model.Callback) *model.Callback {
	was := urlsOf(stored)
	kept := withURLs(c, func(name, url string) string { return KeepURL(url, was[name]) })
	return withKeys(kept, b.KeepKeys(keysOf(c), keysOf(stored)))
}

// KeepURL is [Box.Keep] for a URL.
func KeepURL(url, stored string) string {
	if safetext.HidesPart(url) && url == safetext.URL(stored) {
		return stored
	}
	return url
}

// KeepKeys is [Box.Keep] for keys.
func (b *Box) KeepKeys(keys, stored []callback.Key) []callback.Key {
	return mapKeys(keys, func(_ int, k callback.Key) string {
		if i := slices.IndexFunc(stored, func(s callback.Key) bool { return s.AccessKey == k.AccessKey }); i >= 0 {
			return b.kept(k.Secret, stored[i].Secret, k.AccessKey)
		}
		return k.Secret
	})
}

// mapKeys returns the keys with other secrets.
func mapKeys(keys []callback.Key, secret func(i int, k callback.Key) string) []callback.Key {
	out := slices.Clone(keys)
	for i, k := range keys {
		out[i].Secret = secret(i, k)
	}
	return out
}

func keysOf(c *model.Callback) []callback.Key {
	if c == nil || c.Security == nil {
		return nil
	}
	return c.Security.Keys
}

// withKeys returns the callback with other keys.
func withKeys(c *model.Callback, keys []callback.Key) *model.Callback {
	if len(keys) == 0 {
		return c
	}
	out, security := *c, *c.Security
	out.Security, security.Keys = &security, keys
	return &out
}

// urlsOf returns the callback's URLs by the names of their receivers in documents.
func urlsOf(c *model.Callback) map[string]string {
	out := map[string]string{}
	if c != nil && c.Success != nil {
		out["success"] = c.Success.URL
	}
	if c != nil && c.Error != nil {
		out["error"] = c.Error.URL
	}
	return out
}

// withURLs returns the callback with other URLs.
func withURLs(c *model.Callback, change func(name, url string) string) *model.Callback {
	if c == nil {
		return nil
	}
	out := *c
	for name, t := range map[string]**model.CallbackTarget{"success": &out.Success, "error": &out.Error} {
		if *t != nil {
			changed := **t
			changed.URL = change(name, changed.URL)
			*t = &changed
		}
	}
	return &out
}
