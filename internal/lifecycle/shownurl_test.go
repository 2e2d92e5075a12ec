package lifecycle

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

func TestAnAddressIsShownWithoutWhatMayBeSecret(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                       "",
		"https://h":                              "https://h",
		"https://h/a/b@c":                        "https://h/a/b@c",
		"https://h/a?":                           "https://h/a?",
		"https://h/a?r={{ run_id }}&x=a{{name}}": "https://h/a?r={{ run_id }}&x=***",
		"https://h/a?token=1&x=":                 "https://h/a?token=***&***",
		"https://h?c2VjcmV0==&&b=1=2":            "https://h?***&&b=***",
		"https://h/?a=b?c=d#e":                   "https://h/?a=***#***",
		"http://bob:hunter2@h:80/x?t=1":          "http://***@h:80/x?t=***",
		"http://bob@h":                           "http://***@h",
		"http://bob:hunter2@h/a@b":               "http://***@h/a@b",
		"/done?token=1":                          "/done?token=***",
		"//bob:hunter2@h/":                       "//***@h/",
		"example.org/x":                          "example.org/x",
		"bob:hunter2@h/":                         "***",
		"http://bob:hun/ter2@h":                  "***",
		"http://bob:hunter2@h /":                 "***",
		"https://h/a?redirect=http://b:p@x/y":    "https://h/a?redirect=***",
	} {
		require.Equal(t, want, safetext.URL(raw), raw)
		require.Equal(t, want, safetext.URL(want), "shown twice: %s", raw)
		require.Equal(t, want != raw, safetext.HidesPart(want), raw)
	}
	for _, raw := range []string{"https://h/***", "https://h/?a=**", "https://h/?a=1&b=****"} {
		require.False(t, safetext.HidesPart(raw), raw)
	}
}

func TestNoSecretOfAnAddressIsEverShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const secret = "s3cr3t"
		around := rapid.StringMatching(`[a-z:/?#&=@%;.+ -]{0,8}`)
		part := rapid.SampledFrom([]string{"user", "query", "bare", "fragment"}).Draw(t, "part")
		before, after := around.Draw(t, "before"), around.Draw(t, "after")
		raw := map[string]string{
			"user":     "http://bob:" + secret + "@h" + after,
			"query":    "http://h/p?" + before + "=" + secret + after,
			"bare":     "http://h/p?" + secret,
			"fragment": "http://h/p?" + before + "#" + secret + after,
		}[part]
		require.NotContains(t, safetext.URL(raw), secret, raw)
		require.Equal(t, safetext.URL(raw), safetext.URL(safetext.URL(raw)))
	})
}

func TestACallbackIsPrintedWithoutWhatItsAddressesHide(t *testing.T) {
	c := told("http://example.org/?token=hunter2")
	data, err := json.Marshal(c)
	require.NoError(t, err)
	for _, text := range []string{string(data), c.String(), fmt.Sprintf("%v %+v", *c.Success, c.Error)} {
		require.NotContains(t, text, "hunter2")
		require.Contains(t, text, "http://example.org/?token=***")
	}
}

func TestAddressesWithAPasswordAreRefusedAndNotRepeated(t *testing.T) {
	for _, raw := range []string{
		"http://bob:hunter2@h/", "http://bob@h/?t=hunter2", "ftp://bob:hunter2@h", "http://bob:hunter2", "bob:hunter2@h", "http://bob:hunter2@h /",
		"http://h/\x7f?token=hunter2",
	} {
		err := input.Callback((&model.Callback{Success: &model.CallbackTarget{URL: raw}}))
		require.ErrorIs(t, err, model.ErrInvalid, raw)
		require.ErrorContains(t, err, "callback.success.url")
		require.NotContains(t, err.Error(), "hunter2", raw)
	}
}

func TestTheReasonWhyATextIsNoURLRepeatsNothingOfIt(t *testing.T) {
	for raw, want := range map[string]string{
		"http://bob:hun/ter2@h":       "is not a URL: invalid port after host",
		"http://bob:hunter2@h /":      "is not a URL: invalid character in host name",
		"http://h/%hu?token=hunter2":  "is not a URL: invalid URL escape",
		"http://h/\x7f?token=hunter2": "is not a URL: net/url: invalid control character in URL",
		"bob:hunter2@h":               "does not begin with http:// or https://",
	} {
		for field, err := range map[string]error{
			"callback.success.url": input.Callback(&model.Callback{Success: &model.CallbackTarget{URL: raw}}),
			"args.url":             httpcall.ValidURL("args.url", raw),
		} {
			require.EqualError(t, err, field+" "+want+"; want an absolute http or https address", raw)
		}
	}
}
