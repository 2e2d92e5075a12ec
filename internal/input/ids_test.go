package input

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/model"
)

func TestIdsAndHandlesRoundTrip(t *testing.T) {
	name := rapid.StringMatching(`[a-zA-Z0-9._-]{1,100}`)
	key := rapid.String().Filter(func(s string) bool { return Key(s) == nil })
	rapid.Check(t, func(r *rapid.T) {
		tenant, typ, k := rapid.OneOf(rapid.Just(""), name).Draw(r, "tenant"), name.Draw(r, "type"), key.Draw(r, "key")
		k = rapid.OneOf(rapid.Just(k), rapid.Just("@/"+k+"@/")).Draw(r, "key with separators")
		if len(k) > MaxKeyBytes {
			k = "k"
		}
		id := model.TaskID(tenant, typ, k)
		gotTenant, gotType, gotKey, err := ParseTaskID(id)
		require.NoError(r, err)
		if tenant == model.NoTenant {
			tenant = ""
		}
		require.Equal(r, []string{tenant, typ, k}, []string{gotTenant, gotType, gotKey})

		h := Handle{TaskID: id, Generation: rapid.Int64().Draw(r, "generation"), ExecID: rapid.StringMatching(`[0-9a-f-]{1,36}`).Draw(r, "exec")}
		got, err := ParseHandle(h.String())
		require.NoError(r, err)
		require.Equal(r, h, got)
	})
}

func TestWhatIsNoIdIsRefused(t *testing.T) {
	for _, id := range []string{"", "a", "a/b", "a/b/", "/b/c", "a//c", "a b/c/d", "a/b/\x00", "a/b/\xff", "a/b/" + strings.Repeat("k", 401)} {
		_, _, _, err := ParseTaskID(id)
		require.ErrorIs(t, err, model.ErrInvalid, "%q", id)
	}
	good := Handle{TaskID: "-/t/k", Generation: 1, ExecID: "e"}.String()
	for _, h := range []string{"", "x", good + "=", good[:4] + "\n" + good[4:], "!" + good,
		Handle{TaskID: "-/t/k", Generation: 1}.String(), Handle{TaskID: "no id", Generation: 1, ExecID: "e"}.String()} {
		_, err := ParseHandle(h)
		require.ErrorIs(t, err, model.ErrInvalid, "%q", h)
	}
}

func TestNewKeysSortByTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		at := rapid.Int64Range(0, 1<<47)
		a, b := at.Draw(r, "a"), at.Draw(r, "b")
		var low, high [10]byte
		for i := range high {
			high[i] = 255
		}
		ka, kb := newKey(time.UnixMilli(a), high), newKey(time.UnixMilli(b), low)
		require.Len(r, ka, 26)
		require.NoError(r, Key(ka))
		if a < b {
			require.Less(r, ka, kb)
		} else if a == b {
			require.Greater(r, ka, kb)
		}
	})
}

func TestTokensOrderAsTheirText(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(l string) model.Token {
			return model.Token{Generation: rapid.Int64Range(1, 1<<50).Draw(r, l+" generation"), Rev: rapid.Int64Range(1, 1<<32-1).Draw(r, l+" rev")}
		}
		a, b := draw("a"), draw("b")
		if rapid.Bool().Draw(r, "same life") {
			b.Generation = a.Generation
		}
		require.Equal(r, a.Compare(b), strings.Compare(a.String(), b.String()))
		require.Equal(r, a.Compare(b), -b.Compare(a))
	})
}

// An event of no execution names none.
func TestOnlyAnExecIDIsHidden(t *testing.T) {
	require.Empty(t, ShownExecID(""))
	require.NotContains(t, ShownExecID("claim-1"), "claim")
}
