package dashboard

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNextPageFollowsThoughItsBeginHasLeftTheList(t *testing.T) {
	var all []string
	for i := range 120 {
		all = append(all, fmt.Sprintf("a/%03d", i))
	}
	page := func(token string) ([]string, string) {
		v := &visit{r: httptest.NewRequestWithContext(t.Context(), "GET", "/?"+url.Values{"page_token": {token}}.Encode(), nil)}
		return pageOf(v, all, func(s string) string { return s })
	}
	shown, next := page("")
	require.Equal(t, all[:50], shown)
	shown, last := page(next)
	require.Equal(t, all[50:100], shown)

	all = slices.Delete(all, 49, 50) // the one that the token names
	shown, _ = page(next)
	require.Equal(t, "a/051", shown[0], "one was passed over, and none is shown twice")
	all = slices.Insert(all, 0, "a/", "b/")
	shown, _ = page(last)
	require.Equal(t, "a/100", shown[0], "the name counts where it is there")

	all = all[:60]
	shown, next = page(last)
	require.Equal(t, all[10:], shown, "the end of a list that has become shorter")
	require.Empty(t, next)
	all = nil
	shown, next = page(last)
	require.Empty(t, shown)
	require.Empty(t, next)
	for _, token := range []string{"a/003", "-1/x", "99999999999999999999/x", "/"} {
		all = []string{"x"}
		shown, _ = page(token)
		require.Equal(t, all, shown, token)
	}
}

func TestJSONIsShownWithItsSigns(t *testing.T) {
	for _, text := range []string{indented(document{"a&b": "<i>"}), cell(document{"a&b": "<i>"})} {
		require.Contains(t, text, `"a&b":`)
		require.Contains(t, text, `"<i>"`)
	}
	require.Equal(t, "a & b", treeOf([]any{"a & b"})[0].Text[1:6])
}
