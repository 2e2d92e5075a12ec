package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/internal/safetext"
)

const (
	maxRequest = 8 << 10 // bytes of what a caller said
	maxField   = 8 << 10 // bytes of one field of a thing
	maxItems   = 20      // elements of a list
)

var (
	// secretNames are fields whose text is hidden wherever they are.
	secretNames = []string{"sk", "secret", "password", "token", "access_token", "authorization", "api_key"}
	// payloads are fields of what callers hand to handlers. It is theirs, and may be large: the documents of
	// tasks have it.
	payloads = []string{"args", "input", "messages", "values", "result", "results", "output", "body", "ext", "env", "checkpoint", "returns", "steps"}
	// tokens are those of the API, of issuers, and sealed secrets, within any text.
	tokens = regexp.MustCompile(`msk_[0-9a-z]{16}_[0-9a-z]{32}|eyJ[\w-]+\.[\w-]+\.[\w-]*|mss1\.\S+`)
	// userinfo is that of an address.
	userinfo = regexp.MustCompile(`://[^/?#\s"]*@`)
)

// Request is what a caller said, as it is recorded: without secrets, and with sizes in the place of
// payloads. What is no JSON is left out.
func Request(said any) string {
	data, ok := said.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(said); err != nil {
			return ""
		}
	}
	text := masked(data, true)
	if len(text) > maxRequest {
		return fmt.Sprintf(`{"bytes":%d}`, len(data))
	}
	return text
}

// masked is JSON without secrets; brief leaves payloads and the rest of long lists out.
func masked(data []byte, brief bool) string {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return ""
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(hidden("", v, brief)) != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}

// hidden is a value of a field as it may be shown.
func hidden(name string, v any, brief bool) any {
	switch v := v.(type) {
	case map[string]any:
		for field, value := range v {
			switch lower := strings.ToLower(field); {
			case value != nil && (slices.Contains(secretNames, lower) || safetext.IsCredential(field)):
				v[field] = safetext.Hidden
			case brief && slices.Contains(payloads, lower):
				data, _ := json.Marshal(value) // it was JSON
				v[field] = fmt.Sprintf("(%d bytes)", len(data))
			default:
				v[field] = hidden(lower, value, brief)
			}
		}
		return v
	case []any:
		if brief && len(v) > maxItems {
			v = append(v[:maxItems:maxItems], fmt.Sprintf("(%d more)", len(v)-maxItems))
		}
		for i := range v {
			v[i] = hidden(name, v[i], brief)
		}
		return v
	case string:
		if name == "url" {
			return safetext.URL(v)
		}
		return userinfo.ReplaceAllString(tokens.ReplaceAllString(v, safetext.Hidden), "://"+safetext.Hidden+"@")
	default:
		return v
	}
}
