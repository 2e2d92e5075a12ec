package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServeExportsItsSpansBeforeItEnds(t *testing.T) {
	s := newSession(t)
	var mu sync.Mutex
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got.WriteString(r.Method + " " + r.URL.Path + "\n")
		_, _ = io.Copy(&got, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL) // for the exporter, which reads it itself
	s.environ = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}
	api, _, stop := s.serving("--no-worker", "--no-engines")
	status, _ := s.request(http.MethodPost, api+"/api/v1/tasks", "", `{"type": "mail"}`)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, ExitOK, stop().code)
	mu.Lock()
	defer mu.Unlock()
	for _, text := range []string{"POST /v1/traces\n", "POST /api/v1/tasks", "send mail", "messaging.message.id", "service.name", "mscheduler"} {
		require.Contains(t, got.String(), text)
	}
}

func TestAnExporterThatIsNotThereIsRefused(t *testing.T) {
	s := newSession(t)
	s.environ = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	s.fails(ExitUsage, []string{`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"; want http/protobuf`}, "work")
	s.environ = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=zipkin"}
	s.fails(ExitUsage, []string{`OTEL_TRACES_EXPORTER is "zipkin"; want otlp or none`}, "serve")
}
