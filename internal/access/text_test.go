package access

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/model"
)

func TestATokensTextHasAnIdAndASecretOf160Bits(t *testing.T) {
	require.GreaterOrEqual(t, secretBytes*8, 160)
	seen := map[string]bool{}
	for range 100 {
		id, secret := random(idBytes), random(secretBytes)
		text := prefix + id + "_" + secret
		require.Regexp(t, `^msk_[0-9a-hjkmnp-tv-z]{16}_[0-9a-hjkmnp-tv-z]{32}$`, text)
		gotID, gotSecret, ok := Split(text)
		require.True(t, ok)
		require.Equal(t, []string{id, secret}, []string{gotID, gotSecret})
		require.False(t, seen[id] || seen[secret])
		seen[id], seen[secret] = true, true
	}
}

const (
	goodID     = "0123456789abcdef"
	goodSecret = "0123456789abcdefghjkmnpqrstvwxyz"
	goodText   = prefix + goodID + "_" + goodSecret
)

func TestATokenHasOneSpelling(t *testing.T) {
	_, _, ok := Split(goodText)
	require.True(t, ok)
	for _, wrong := range []string{
		"", "msk_", "msk__", goodID, goodSecret, "Bearer " + goodText, " " + goodText, goodText + " ", goodText + "\n", "\n" + goodText,
		strings.ToUpper(goodText), "MSK_" + goodID + "_" + goodSecret, "msk-" + goodID + "_" + goodSecret, goodText + "=", goodText + "0",
		goodText[:len(goodText)-1], prefix + goodID + goodSecret, prefix + goodID + "__" + goodSecret, goodText + "_" + goodSecret,
		prefix + goodID[1:] + "_" + goodSecret, prefix + "_" + goodSecret, prefix + goodID + "_",
		strings.Replace(goodText, "z", "\n", 1), strings.Replace(goodText, "z", "i", 1), strings.Replace(goodText, "z", "\x00", 1), strings.Replace(goodText, "yz", "ä", 1),
		prefix + goodSecret + "_" + goodID, prefix + strings.Repeat("0", 1<<20) + "_" + goodSecret,
	} {
		id, secret, ok := Split(wrong)
		require.False(t, ok, "%.80q", wrong)
		require.Empty(t, id+secret, "%.80q", wrong)
	}
}

func TestAnIdIsAlsoTakenFromATokenAndAnErrorRepeatsNeither(t *testing.T) {
	for _, text := range []string{goodID, goodText} {
		id, err := ParseID("id", text)
		require.NoError(t, err)
		require.Equal(t, goodID, id)
	}
	for _, wrong := range []string{"", goodSecret, goodText + "0", goodText[1:], goodID + "\n"} {
		id, err := ParseID("id", wrong)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, "id is not that of a token")
		require.NotContains(t, err.Error(), goodSecret)
		require.Empty(t, id)
	}
}

// Whatever is taken apart is written again as it was, so no two texts are one token.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"", goodText, goodText + "_", "msk_a_b", "msk__", strings.ToUpper(goodText)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, ok := Split(text)
		if !ok {
			require.Empty(t, id+secret)
			return
		}
		require.Equal(t, text, prefix+id+"_"+secret)
		for _, part := range []string{id, secret} {
			raw, err := encoding.DecodeString(part)
			require.NoError(t, err)
			require.Equal(t, part, encoding.EncodeToString(raw))
		}
	})
}

// A text that differs from a token's in one place is another token's or none.
func TestAChangedTokenIsAnotherOne(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		at := rapid.IntRange(0, len(goodText)-1).Draw(r, "at")
		b := rapid.Byte().Filter(func(b byte) bool { return b != goodText[at] }).Draw(r, "byte")
		changed := goodText[:at] + string([]byte{b}) + goodText[at+1:]
		id, secret, ok := Split(changed)
		if ok {
			require.False(r, id == goodID && secret == goodSecret)
			require.True(r, id != goodID || !matches(hash(goodSecret), hash(secret)))
		}
	})
}

func TestOnlyTheWholeHashMatches(t *testing.T) {
	h := hash(goodSecret)
	require.Len(t, h, sha256.Size)
	require.True(t, matches(h, hash(goodSecret)))
	for _, stored := range [][]byte{nil, {}, h[:31], append(append([]byte{}, h...), 0), hash(goodSecret[1:]), []byte(goodSecret)} {
		require.False(t, matches(stored, h))
		require.False(t, matches(stored, stored[:min(len(stored), 31)]))
	}
	require.False(t, matches(nil, nil), "a document without a hash has no secret")
}
