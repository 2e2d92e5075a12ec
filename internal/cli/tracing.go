package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// flushTime is how long a process that ends waits for its last spans to be exported.
const flushTime = 5 * time.Second

// exporter exports spans by OTLP where OpenTelemetry's variables say so; nil = they do not. It reads their other
// variables itself: headers, certificates, time limits.
func (a *app) exporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	set := map[string]string{}
	for _, kv := range a.Environ {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") && value != "" {
			set[name] = value
		}
	}
	endpoint := set["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] + set["OTEL_EXPORTER_OTLP_ENDPOINT"]
	if endpoint == "" || strings.EqualFold(set["OTEL_SDK_DISABLED"], "true") || set["OTEL_TRACES_EXPORTER"] == "none" {
		return nil, nil
	}
	if e := set["OTEL_TRACES_EXPORTER"]; e != "" && e != "otlp" {
		return nil, usage("OTEL_TRACES_EXPORTER is %q; want otlp or none", e)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := set[name]; p != "" && p != "http/protobuf" {
			return nil, usage("%s is %q; want http/protobuf", name, p)
		}
	}
	otel.SetErrorHandler(exportErrors{a.logger()})
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, usage("exporting traces: %v", err)
	}
	return exporter, nil
}

// checkTraces is what [app.exportTraces] would find wrong.
func (a *app) checkTraces(ctx context.Context) error {
	exporter, err := a.exporter(ctx)
	if err != nil || exporter == nil {
		return err
	}
	return exporter.Shutdown(ctx)
}

// exportTraces has this process export spans, if it should, until stop is called. The SDK reads
// OpenTelemetry's variables of the sampler, of batches and of the service's attributes itself.
func (a *app) exportTraces(ctx context.Context) (stop func(), err error) {
	exporter, err := a.exporter(ctx)
	if err != nil || exporter == nil {
		return func() {}, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "mscheduler"), attribute.String("service.version", version())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, fmt.Errorf("describing this process for traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	a.traces = provider
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log := a.logger()
			log.Warn().Err(err).Msg("could not export the last spans")
		}
	}, nil
}

// exportErrors logs what the SDK of OpenTelemetry could not do.
type exportErrors struct{ log zerolog.Logger }

func (e exportErrors) Handle(err error) {
	e.log.Warn().Err(err).Msg("could not export spans")
}
