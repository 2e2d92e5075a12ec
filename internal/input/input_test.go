package input

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

func TestEachFieldIsRenamedAlsoBehindAText(t *testing.T) {
	other := errors.New("no server")
	err := Under("body", errors.Join(fmt.Errorf("starting: %w", errors.Join(Invalid("key", "is empty"), Invalid("nodes", "are 0"))), other))
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorIs(t, err, other)
	require.Equal(t, "body.key is empty\nbody.nodes are 0\nno server", err.Error())
	require.Equal(t, other, Under("body", other))
	require.NoError(t, Under("body", nil))
}
