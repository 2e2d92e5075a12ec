package producer

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/tracing"
)

// sendTraced sends drafts in a span. It is around the middleware, whose own spans are its children.
func (p *Producer) sendTraced(ctx context.Context, drafts []*Draft) (sent []Sent, err error) {
	typ := drafts[0].Type
	for _, d := range drafts {
		if d.Type != typ {
			typ = ""
		}
	}
	attributes := tracing.Message("send", "send", typ)
	if len(drafts) > 1 {
		attributes = append(attributes, attribute.Int("messaging.batch.message_count", len(drafts)))
	}
	ctx, span := p.tracer.Start(ctx, tracing.Name("send", typ), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	defer func() {
		if len(sent) == 1 {
			span.SetAttributes(attribute.String("messaging.message.id", sent[0].ID), attribute.Bool("mscheduler.created", sent[0].Created))
		}
		tracing.End(span, err)
	}()
	return p.send(ctx, drafts)
}
