package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/producer"
)

func TestAMailIsSentAgainUntilItIsAccepted(t *testing.T) {
	db := mstest.DB(t) // a fresh database; it needs no installation
	require.NoError(t, signUp(t.Context(), db, "ann@example.org"))
	require.NoError(t, signUp(t.Context(), db, "ann@example.org")) // creates no task
	require.Len(t, mstest.Sent(t, db, SendMail), 1)

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	attempts := 0
	require.NoError(t, Handle(c, func(string, Mail) error {
		if attempts++; attempts < 3 {
			return errors.New("mailbox busy")
		}
		return nil
	}))
	report := mstest.Drain(t, c, mstest.SkipTime()) // do not wait between attempts
	require.Equal(t, 1, report.Succeeded)
	require.Equal(t, 2, report.Errors)
}

func TestAMailWithoutReceiverFailsAtOnce(t *testing.T) {
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	_, err = producer.Send(t.Context(), p, SendMail, Mail{Subject: "Welcome"})
	require.NoError(t, err)

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, Handle(c, func(string, Mail) error { return nil }))
	require.Equal(t, 1, mstest.Drain(t, c).Failed)
}

func TestTheDigestIsSentEachNight(t *testing.T) {
	db := mstest.DB(t)
	engine, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	digest := Digest("0 30 2 * * *")
	digest.MaxRuns = 2 // skipped time reaches all ticks
	_, err = engine.Apply(t.Context(), digest)
	require.NoError(t, err)

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, Handle(c, func(_ string, m Mail) error {
		require.Equal(t, "subscribers@example.org", m.To)
		return nil
	}))
	report := mstest.Drain(t, c, mstest.SkipTime(), mstest.With(engine.Drain))
	require.Equal(t, 2, report.Succeeded)
}
