package producer

import (
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
)

// Check validates a task as a send with this Config would. It does no I/O and needs no
// Database. Errors match model.ErrInvalid.
func (c Config) Check(typ string, args any, opts ...Option) error {
	secrets, err := secret.Parse("secret_key", c.SecretKey)
	if err == nil {
		_, _, err = draftOf(c.Tenant, secrets, typ, args, opts)
	}
	return err
}

// draftOf turns the input of one task into a checked draft; its secrets are sealed.
func draftOf(tenant string, secrets *secret.Box, typ string, args any, opts []Option) (d *Draft, outside bool, err error) {
	s := gather(Draft{Tenant: tenant, Type: typ}, opts)
	if s.has("Args") {
		s.complain("args", "is given by the send itself; the option Args is for Update")
	}
	if s.has("IfRev") {
		s.complain("rev", "is for Update; a send does not read the task")
	}
	var badArgs error
	s.draft.Args, badArgs = codec.EncodeValue("args", args, input.MaxArgsBytes)
	if err = errors.Join(append(s.complaints, badArgs, s.draft.validate())...); err == nil {
		err = s.draft.seal(secrets)
	}
	return &s.draft, s.outside, err
}

// seal makes the secrets of the draft's callback unreadable; what is sealed stays so.
func (d *Draft) seal(secrets *secret.Box) (err error) {
	d.Options.Callback, err = secrets.SealCallback("callback", d.Options.Callback)
	return err
}

// validate finds everything that is wrong with the draft.
func (d *Draft) validate() error {
	m := d.stored()
	if m.Key == "" {
		m.Key = "made up later"
	}
	return errors.Join(m.Validate(), validIn("in", d.In), validIn("expires_in", d.ExpiresIn), validExisting(d.OnExisting))
}

func validIn(field string, d time.Duration) error {
	switch {
	case d < 0:
		return input.Invalid(field, "is %v; it cannot be negative", d)
	case d > input.MaxDuration:
		return input.Invalid(field, "is %v; at most ten years are allowed", d)
	default:
		return nil
	}
}

func validExisting(e model.Existing) error {
	if e&^knownFlags != 0 {
		return input.Invalid("on_existing", "is %s, which has unknown flags", existingText(e))
	}
	if e&model.KeepArgs != 0 && e&(model.RestartFailed|model.RestartSucceeded) == 0 {
		return input.Invalid("on_existing", "is %s; KeepArgs needs RestartFailed or RestartSucceeded", existingText(e))
	}
	return nil
}

// newOutgoing makes the document of the draft, in its first life; typ is what is stored of its
// type, nil = nothing, from the span that sends it. It fixes what the draft left to the moment of the write: a key, a start
// time, an expiry.
func newOutgoing(d *Draft, typ *model.TaskType, from *model.Trace, now time.Time) *outgoing {
	if d.Key == "" {
		d.Key = input.NewKey(now)
	}
	if d.In > 0 {
		d.Start = now.Add(d.In)
	}
	if d.ExpiresIn > 0 {
		d.Options.ExpiresAt = now.Add(d.ExpiresIn)
	}
	o := &outgoing{draft: d.stored(), exists: d.OnExisting}
	o.draft.Trace = from
	o.draft.Typed(typ)
	o.task = lifecycle.NewTask(o.draft, now)
	return o
}
