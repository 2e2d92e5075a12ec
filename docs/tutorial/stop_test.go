package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/periodic"
)

func TestTheServiceEndsWithoutAnErrorWhenItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context()) // as SIGTERM does
	db := mstest.DB(t)
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, db) }()
	rules, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it has begun
		_, err := rules.Named(t.Context(), "", Digest("").Name)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

func TestTheServiceEndsWithoutAnErrorWhenItIsStoppedWhileItStarts(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, work(ctx, mstest.DB(t)))
}
