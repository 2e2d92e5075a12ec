// Package callback is for those who receive callbacks of mscheduler: it checks that a
// request comes from who shares a secret with the receiver, and was not changed or sent
// again by somebody else. Of others' code it links in the standard library
// alone.
//
//	http.HandleFunc("POST /hooks/tasks", func(w http.ResponseWriter, r *http.Request) {
//		d, err := callback.Verify(r, callback.Key{AccessKey: "ak", Secret: secret})
//		if err != nil {
//			w.WriteHeader(callback.Status(err))
//			return
//		}
//		// d.ID names the end of one life of one task, for ever: drop what you have seen.
//		// d.Body is {"ext": ..., "result": ...} or {"task_id": ..., "error_info": ..., "ext": ...};
//		// the latter has "status": "Pending" where a person must decide.
//	})
//
// The headers are those of Standard Webhooks (standardwebhooks.com), so that its libraries
// verify a callback, too:
//
//	webhook-id          names what is delivered; the same for every try, and when a person
//	                    has it delivered again
//	webhook-timestamp   seconds since 1970 at which this try was signed
//	webhook-signature   v1,<base64 of HMAC-SHA256 over id.timestamp.body>, one for each key,
//	                    separated by spaces
//	webhook-access-key  the access keys of the signatures, in their order
//	webhook-task        the task's id, percent-encoded; it is not signed
//
// A callback is delivered at least once: a receiver that has answered may be asked again,
// because its answer was lost. Verify does not remember ids, since they must be remembered
// where the receiver's effects are, together with them.
//
// Any 2xx answer takes the callback; everything else, a redirect too, makes the sender try
// again later, except for 410 (Gone), which makes it give up at once. Retry-After is
// honoured with 408, 429 and 5xx.
package callback
