package command

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestACheckThatItsSenderAbandonedIsMadeAgain(t *testing.T) {
	r, err := Open(Config{Database: testdb.New(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
	c := &check{done: make(chan struct{}), err: context.Canceled, abandoned: true}
	r.check = c
	prepared := make(chan error, 1)
	go func() { prepared <- r.Prepare(context.Background()) }()
	r.mu.Lock()
	r.check = nil
	r.mu.Unlock()
	close(c.done)
	require.NoError(t, <-prepared)
}
