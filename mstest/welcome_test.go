package mstest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// This is how a service tests its sender and its handler.

func TestWelcomeMailIsSentOnce(t *testing.T) {
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, SignUp(t.Context(), db.Collection("users"), p, "ann"))
	require.Error(t, SignUp(t.Context(), db.Collection("users"), p, "ann"), "the user is there already")
	require.Equal(t, []WelcomeArgs{{User: "ann"}}, mstest.Sent(t, db, Welcome))

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	var mails []string
	require.NoError(t, HandleWelcome(c, func(user, _ string) error {
		mails = append(mails, user)
		return nil
	}))
	require.Equal(t, 1, mstest.Drain(t, c).Succeeded)
	require.Equal(t, []string{"ann"}, mails)
}

func TestWelcomeMailIsRepeatedUntilItIsAccepted(t *testing.T) {
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	_, err = producer.Send(t.Context(), p, Welcome, WelcomeArgs{User: "ann"})
	require.NoError(t, err)

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	tries := 0
	require.NoError(t, HandleWelcome(c, func(string, string) error {
		if tries++; tries < 3 {
			return errors.New("mailbox busy")
		}
		return nil
	}))
	report := mstest.Drain(t, c, mstest.SkipTime()) // do not wait between attempts
	require.Equal(t, 1, report.Succeeded)
	require.Equal(t, 2, report.Errors)
}
