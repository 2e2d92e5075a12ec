package form

import (
	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
)

// SecretChanges say which secrets and which addresses of a callback a file changes where it
// is not to be seen.
func SecretChanges(path string, old, now *model.Callback) []string {
	return append(GivenSecrets(path+".security.keys", callbackKeys(now)), hiddenURLs(path, old, now)...)
}

func callbackKeys(c *model.Callback) []callback.Key {
	if c == nil || c.Security == nil {
		return nil
	}
	return c.Security.Keys
}

// hiddenURLs says which addresses a file changes in what is not shown of them.
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

// GivenSecrets says which secrets a file sets: they cannot be compared with sealed ones.
// What is not shown stays what it is.
func GivenSecrets(path string, keys []callback.Key) (changes []string) {
	for _, k := range keys {
		if k.Secret != safetext.Hidden {
			changes = append(changes, "+ "+path+": a new secret for the key "+k.AccessKey)
		}
	}
	return changes
}
