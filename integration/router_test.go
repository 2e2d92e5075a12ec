package integration

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// routerEngine is an embedded server behind a proxy that says of itself what mongos says. It
// takes part only where MSCHEDULER_TEST_ENGINES names it (`make router`).
func routerEngine() engine.Engine {
	return engine.Engine{Name: "router", Start: func(ctx context.Context) (*engine.Deployment, error) {
		server, err := engine.Embedded(embedded.Options{}).Start(ctx)
		if err != nil {
			return nil, err
		}
		px, err := proxy.Start(server.URI)
		if err != nil {
			_ = server.Close() // the first error counts
			return nil, err
		}
		px.Rewrite(proxy.AsRouter)
		return engine.External("router", px.URI(), func() error {
			px.Close()
			return server.Close()
		}), nil
	}}
}
