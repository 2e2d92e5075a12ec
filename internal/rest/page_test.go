package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/rest"
)

func TestThePageNeedsNoTokenAndNoOtherHost(t *testing.T) {
	w := guarded(t)
	for path, contentType := range map[string]string{"/docs/": "text/html", "/docs/page.js": "text/javascript", "/docs/page.css": "text/css"} {
		a := w.do("GET", path, "")
		require.Equal(t, http.StatusOK, a.status, path)
		require.Contains(t, a.header.Get("Content-Type"), contentType)
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'")
		require.NotRegexp(t, `(src|href)="(https?:)?//|@import|\burl\(|innerHTML|\son[a-z]+="|<style|style=`, a.text, "it asks only its own server, and no text becomes HTML")
	}
	require.Equal(t, http.StatusUnauthorized, w.do("GET", "/api/v1/openapi.json", "").status, "what it shows is for those who have a token")
	require.Equal(t, http.StatusNotFound, w.do("GET", "/docs/page.go", "").status)
}

func TestThePageIsFoundBelowItsMount(t *testing.T) {
	w := newWorld(t, func(c *rest.Config) { c.Mount = "/scheduler" })
	for _, path := range []string{"/docs", "/docs/"} {
		a := w.do("GET", path, "") // redirects are followed
		require.Equal(t, http.StatusOK, a.status, path)
		require.Contains(t, a.text, "<title>mscheduler API</title>", path)
	}
}

// Examples are what people begin with: each operation that takes a body has one, and takes it.
func TestEachOperationTakesTheExampleOfItsBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t).as("If-Match", "*")
	var doc struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Body *struct {
				Content map[string]struct{ Example json.RawMessage }
			} `json:"requestBody"`
		}
	}
	text, err := w.api.DescriptionJSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &doc))
	n := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.Body == nil {
				continue
			}
			n++
			t.Run(op.ID, func(t *testing.T) {
				example := string(op.Body.Content["application/json"].Example)
				require.NotEmpty(t, example, "internal/rest/examples.go has none")
				a := w.do(strings.ToUpper(method), operation{ID: op.ID, path: path}.of("-"), strings.Replace(example, `"20s"`, `"0s"`, 1))
				require.NotContains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError}, a.status, a.text)
			})
		}
	}
	require.Greater(t, n, 20)
}
