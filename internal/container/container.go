package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/mongodb"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/mscheduler/mscheduler/internal/engine"
)

const (
	// ImageVariable names another image than [DefaultImage].
	ImageVariable = "MSCHEDULER_TEST_IMAGE"
	// DefaultImage is MongoDB's official one.
	DefaultImage = "mongo:8"

	name      = "container"
	port      = "27017/tcp"
	startTime = 3 * time.Minute // the image may have to be pulled
)

// Engine is MongoDB in a container, if Docker answers. A mongo image (see [IsMongo]) is
// started as a replica set of one member; any other is run as it is and must serve the
// wire protocol on port 27017 as a primary, as `mscheduler embedded` does.
func Engine() engine.Engine {
	return engine.Engine{Name: name, Start: func(ctx context.Context) (*engine.Deployment, error) {
		if err := dockerAnswers(ctx); err != nil {
			return nil, &engine.MissingError{Engine: name, Reason: "Docker does not answer: " + err.Error()}
		}
		image := os.Getenv(ImageVariable)
		if image == "" {
			image = DefaultImage
		}
		return Start(ctx, image)
	}}
}

// Start runs the image and waits until it takes writes.
func Start(ctx context.Context, image string) (*engine.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	c, err := run(ctx, image)
	var uri string
	if err == nil {
		uri, err = address(ctx, c)
	}
	if err == nil {
		err = engine.AwaitPrimary(ctx, uri)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a container of %s: %w", image, err), testcontainers.TerminateContainer(c))
	}
	return engine.External(name, uri, func() error { return testcontainers.TerminateContainer(c) }), nil
}

func run(ctx context.Context, image string) (testcontainers.Container, error) {
	if IsMongo(image) {
		c, err := mongodb.Run(ctx, image, mongodb.WithReplicaSet("rs0"))
		if c == nil {
			return nil, err // not a nil pointer in an interface
		}
		return c, err
	}
	c, err := testcontainers.Run(ctx, image, testcontainers.WithExposedPorts(port),
		// From outside: an image from scratch has no shell to look from inside.
		testcontainers.WithWaitStrategy(wait.ForListeningPort(port).SkipInternalCheck().SkipExternalCheck()))
	if c == nil {
		return nil, err
	}
	return c, err
}

// address is a direct connection: the replica set knows itself by an address inside the
// container's network, which need not be reachable from here.
func address(ctx context.Context, c testcontainers.Container) (string, error) {
	endpoint, err := c.PortEndpoint(ctx, port, "mongodb")
	if err != nil {
		return "", err
	}
	return endpoint + "/?directConnection=true", nil
}

// IsMongo says whether the image is one of MongoDB's server, by its name: the last part
// of the repository starts with "mongo", as in mongo:8, mirror.example/library/mongo or
// mongodb/mongodb-community-server:8.0-ubi9.
func IsMongo(image string) bool {
	image, _, _ = strings.Cut(image, "@") // the digest
	last := path.Base(image)
	last, _, _ = strings.Cut(last, ":") // the tag
	return strings.HasPrefix(last, "mongo")
}

// dockerAnswers asks the daemon. testcontainers panics where it finds no way to one.
func dockerAnswers(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	return errors.Join(provider.Health(ctx), provider.Close())
}
