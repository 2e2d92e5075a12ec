package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// URIVariable names a deployment to run tests on.
const URIVariable = "MSCHEDULER_MONGODB_URI"

// URI is the deployment that the environment names. When it is named and does not
// answer, that is an error and no reason to take another engine.
func URI() Engine {
	return Engine{Name: "uri", Variable: URIVariable, Start: func(ctx context.Context) (*Deployment, error) {
		uri := os.Getenv(URIVariable)
		if uri == "" {
			return nil, missing("uri", "%s is not set", URIVariable)
		}
		err := awaitListener(ctx, uri)
		if err == nil {
			err = AwaitPrimary(ctx, uri)
		}
		if err != nil {
			return nil, fmt.Errorf("the deployment that %s names: %w; to test on a server that the tests start: unset %s", URIVariable, err, URIVariable)
		}
		return External("uri", uri, nil), nil
	}}
}

const (
	// listenTime is how long a deployment may refuse all connections: a server that starts does so, but not for long.
	listenTime = 10 * time.Second
	// dialTime is how long a host may leave a connection unanswered, which is no refusal.
	dialTime = 2 * time.Second
)

// awaitListener waits until a host of the deployment no longer refuses connections. What that host then does,
// [AwaitPrimary] finds out.
func awaitListener(ctx context.Context, uri string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listenTime, fmt.Errorf("refused for %v", listenTime))
	defer cancel()
	hosts := options.Client().ApplyURI(uri).Hosts
	return retry(ctx, "connecting", func(ctx context.Context) error {
		var refusals []error
		for _, host := range hosts {
			err := dial(context.WithoutCancel(ctx), address.Address(host)) // the end of ctx is no timeout of the host
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return nil // connected, or something that may take longer, such as a name that is not known yet
			}
			refusals = append(refusals, err)
		}
		return errors.Join(refusals...)
	})
}

func dial(ctx context.Context, to address.Address) error {
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, to.Network(), to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
