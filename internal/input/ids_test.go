package input

import (
	"cmp"
	"encoding/base64"
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

		h := HandleOf(&model.Task{ID: id, Generation: rapid.Int64().Draw(r, "generation")}, rapid.StringMatching(`[0-9a-f-]{1,36}`).Draw(r, "exec"))
		got, err := ParseHandle(h.String())
		require.NoError(r, err)
		require.Equal(r, h, got)
	})
}

// Tasks of one batch have the same exec_id.
func TestAHandleNamesTheExecutionOfOneLifeOfOneTask(t *testing.T) {
	task := func(id string, generation int64) *model.Task {
		return &model.Task{ID: id, Generation: generation, WorkerStates: []model.WorkerState{{ExecID: "before"}, {ExecID: "of the batch"}}}
	}
	a := task("-/t/a", 1)
	h := HandleOf(a, "of the batch")
	i, w := h.Execution(a)
	require.Equal(t, 1, i)
	require.Same(t, &a.WorkerStates[1], w)

	raw, err := base64.RawURLEncoding.DecodeString(h.String())
	require.NoError(t, err)
	require.NotContains(t, string(raw), "of the batch")
	require.NotContains(t, string(raw), ShownExecID("of the batch"))
	for made, of := range map[string]*model.Task{"-/t/b@1": task("-/t/b", 1), "-/t/a@2": task("-/t/a", 2)} {
		other, err := ParseHandle(base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(raw), "-/t/a@1", made, 1))))
		require.NoError(t, err)
		require.Equal(t, []any{of.ID, of.Generation}, []any{other.TaskID, other.Generation})
		i, w = other.Execution(of)
		require.Equal(t, -1, i, made)
		require.Nil(t, w)
		_, w = h.Execution(of)
		require.Nil(t, w)
	}
}

func TestWhatIsNoIdIsRefused(t *testing.T) {
	for _, id := range []string{"", "a", "a/b", "a/b/", "/b/c", "a//c", "a b/c/d", "a/b/\x00", "a/b/\xff", "a/b/" + strings.Repeat("k", 401)} {
		_, _, _, err := ParseTaskID(id)
		require.ErrorIs(t, err, model.ErrInvalid, "%q", id)
	}
	good := HandleOf(&model.Task{ID: "-/t/k", Generation: 1}, "e").String()
	for _, h := range []string{"", "x", good + "=", good[:4] + "\n" + good[4:], "!" + good,
		Handle{TaskID: "-/t/k", Generation: 1}.String(), HandleOf(&model.Task{ID: "no id", Generation: 1}, "e").String()} {
		_, err := ParseHandle(h)
		require.ErrorIs(t, err, model.ErrInvalid, "%q", h)
	}
}

func TestAKeyIsKnownByItsForm(t *testing.T) {
	require.True(t, IsKey(NewKey(time.Now())))
	for _, text := range []string{"", "foo", NewKey(time.Now())[1:]} {
		require.False(t, IsKey(text), text)
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
		later := cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Rev, b.Rev))
		require.Equal(r, later, strings.Compare(a.String(), b.String()))
	})
}

// An event of no execution names none.
func TestOnlyAnExecIDIsHidden(t *testing.T) {
	require.Empty(t, ShownExecID(""))
	require.NotContains(t, ShownExecID("claim-1"), "claim")
}
