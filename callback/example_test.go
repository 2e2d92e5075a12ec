package callback_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/callback"
)

// A receiver verifies, remembers what it has seen together with what it does, and answers.
func ExampleVerify() {
	keys := []callback.Key{{AccessKey: "shop-2026", Secret: "new secret"}, {AccessKey: "shop", Secret: "old secret"}}
	seen := map[string]bool{} // in real life a unique index beside the orders
	hook := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := callback.Verify(r, keys...)
		if err != nil {
			w.WriteHeader(callback.Status(err))
			return
		}
		if !seen[d.ID] {
			seen[d.ID] = true
			var end callback.Body
			if err := json.Unmarshal(d.Body, &end); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			fmt.Printf("%s: the result of %s is %s\n", d.ID, end.Ext, end.Result)
		}
	})

	// What the sender does, twice, as it may; and what somebody else tries.
	body := `{"ext": {"order": 17}, "result": "shipped"}`
	for _, key := range []callback.Key{keys[0], keys[0], {AccessKey: "shop", Secret: "guessed"}} {
		r := httptest.NewRequest(http.MethodPost, "/hooks/tasks", strings.NewReader(body))
		if err := callback.Sign(r.Header, "8f14e45fceea167a", time.Now(), []byte(body), key); err != nil {
			fmt.Println(err)
		}
		w := httptest.NewRecorder()
		hook.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 8f14e45fceea167a: the result of {"order": 17} is "shipped"
	// 200
	// 200
	// 401
}
