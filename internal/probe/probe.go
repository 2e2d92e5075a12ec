// Package probe answers the questions of whoever runs a process: whether it lives, and whether it can
// serve.
package probe

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/store"
)

// readyTimeout is how long a database may take to say that it is there.
const readyTimeout = 2 * time.Second

// Add adds /livez and /readyz to a mux. The first always succeeds; the second fails while the database does
// not answer, or has a schema that does not fit, and from the moment that stopping is closed.
func Add(mux interface {
	HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request))
}, st *store.Store, log zerolog.Logger, stopping <-chan struct{}) {
	answer := func(w http.ResponseWriter, status int, text string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text + "\n"))
	}
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-stopping:
			answer(w, http.StatusServiceUnavailable, "the process is stopping")
			return
		default:
		}
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		err := st.Ready(ctx) // the schema, once
		if err == nil {
			_, err = st.ServerTime(ctx)
		}
		if err != nil {
			log.Warn().Err(err).Msg("not ready")
			answer(w, http.StatusServiceUnavailable, "the database does not answer, or its schema is not ready")
			return
		}
		answer(w, http.StatusOK, "ok")
	})
}

// LocalName says whether a Host header names this machine. A page whose name was made to resolve to a
// loopback address would send its own name.
func LocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
