package form

import (
	"slices"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// SecretChanges say which secrets and which addresses of a callback a file changes where it
// is not to be seen. now has what stays as it is stored, see [secret.Box.Keep].
func SecretChanges(path string, old, now *model.Callback) []string {
	return append(GivenSecrets(path+".security.keys", callbackKeys(old), callbackKeys(now)), hiddenURLs(path, old, now)...)
}

func callbackKeys(c *model.Callback) []callback.Key {
	if c == nil || c.Security == nil {
		return nil
	}
	return c.Security.Keys
}

// hiddenURLs says which addresses a file changes in what is not shown of them.
func hiddenURLs(path string, old, now *model.Callback) (changes []string) {
	compare := func(name string, old, now *model.CallbackTarget) {
		if old != nil && now != nil && old.URL != now.URL && safetext.URL(old.URL) == safetext.URL(now.URL) {
			changes = append(changes, HiddenURL(path+"."+name+".url"))
		}
	}
	if old != nil && now != nil {
		compare("success", old.Success, now.Success)
		compare("error", old.Error, now.Error)
	}
	return changes
}

// HiddenURL says that a file changes an address only in what is not shown of it.
func HiddenURL(path string) string { return "+ " + path + ": what is not shown of it" }

// GivenSecrets says which secrets a file sets. now has those that stay as they are stored, see
// [secret.Box.KeepKeys].
func GivenSecrets(path string, old, now []callback.Key) (changes []string) {
	for _, k := range now {
		if !slices.Contains(old, k) {
			changes = append(changes, "+ "+path+": a new secret for the key "+k.AccessKey)
		}
	}
	return changes
}
