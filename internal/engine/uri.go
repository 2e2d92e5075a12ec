package engine

import (
	"context"
	"fmt"
	"os"
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
		if err := AwaitPrimary(ctx, uri); err != nil {
			return nil, fmt.Errorf("the deployment that %s names: %w", URIVariable, err)
		}
		return External("uri", uri, nil), nil
	}}
}
