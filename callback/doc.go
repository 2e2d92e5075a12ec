// Package callback is for receivers of mscheduler's callbacks, the requests that report how a task
// has ended. It checks that the sender knows the receiver's secret, and that nobody has changed or
// replayed the request. It depends on the standard library only.
//
//	http.HandleFunc("POST /hooks/tasks", func(w http.ResponseWriter, r *http.Request) {
//		d, err := callback.Verify(r, callback.Key{AccessKey: "ak", Secret: secret})
//		if err != nil {
//			w.WriteHeader(callback.Status(err))
//			return
//		}
//		// d.ID never changes: drop a delivery that you have seen.
//		var end callback.Body
//		err = json.Unmarshal(d.Body, &end)
//	})
//
// The headers are those of Standard Webhooks (standardwebhooks.com), so that its libraries
// verify a callback, too:
//
//	webhook-id          names the delivery; the same for every try, and when a person repeats it
//	webhook-timestamp   when this try was signed, in seconds since 1970
//	webhook-signature   v1,<base64 of HMAC-SHA256 over id.timestamp.body>, one for each key,
//	                    separated by spaces
//	webhook-access-key  the access keys of the signatures, in their order
//	webhook-task        the task's id, percent-encoded; it is not signed
//	webhook-generation  the number of the task's life; it is not signed
//
// A callback is delivered at least once: if an answer is lost, the sender repeats the request.
// Verify does not remember ids. Store them together with the effects of the callback.
//
// A task that is retried or sent again after its end begins a new life, whose end has a callback of its own.
// Callbacks of two lives can arrive in either order. [Delivery.Generation] tells which life is newer.
//
// Any 2xx answer accepts the callback, and 410 (Gone) makes the sender give up. After any other
// answer, also a redirect, the sender tries again. It honours Retry-After with 408, 429 and 5xx.
package callback
