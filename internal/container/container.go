package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	// A container that runs and takes no writes for so long is replaced by another: on a busy
	// machine Docker has been seen to publish a port that leads nowhere.
	patience = 30 * time.Second
	logBytes = 2 << 10 // of its log are in the error
)

// Engine is MongoDB in a container, if Docker answers. A mongo image (see [IsMongo]) is
// started as a replica set of one member; any other is run as it is and must serve the
// wire protocol on port 27017 as a primary, as `mscheduler embedded` does.
func Engine() engine.Engine {
	return engine.Engine{Name: name, Variable: ImageVariable, Start: func(ctx context.Context) (*engine.Deployment, error) {
		if err := dockerAnswers(ctx); err != nil {
			return nil, &engine.MissingError{Engine: name, Reason: "Docker does not answer: " + err.Error()}
		}
		return Start(ctx, cmp.Or(os.Getenv(ImageVariable), DefaultImage))
	}}
}

// Start runs the image and waits until it takes writes. A container that runs and takes none is
// replaced once. The error has the end of its log.
func Start(ctx context.Context, image string) (*engine.Deployment, error) {
	return within(ctx, image, patience)
}

func within(ctx context.Context, image string, patience time.Duration) (*engine.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	d, silent, err := start(ctx, image, patience)
	if silent {
		var again error
		if d, _, again = start(ctx, image, patience); again == nil {
			return d, nil
		}
		err = errors.Join(err, again)
	}
	return d, err
}

// start tries it once. silent says that the container runs, and takes no writes.
func start(ctx context.Context, image string, patience time.Duration) (d *engine.Deployment, silent bool, err error) {
	c, err := run(ctx, image)
	var uri string
	if err == nil {
		uri, err = address(ctx, c)
	}
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, patience)
		err = engine.AwaitPrimary(wait, uri)
		cancel()
		silent = err != nil
	}
	if err != nil {
		err = fmt.Errorf("starting a container of %s: %w%s", image, err, said(ctx, c))
		return nil, silent, errors.Join(err, testcontainers.TerminateContainer(c))
	}
	return engine.External(name, uri, func() error { return testcontainers.TerminateContainer(c) }), false, nil
}

// said is what an error tells of a container: its state and the end of its log.
func said(ctx context.Context, c testcontainers.Container) string {
	if c == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var b strings.Builder
	if state, err := c.State(ctx); err == nil {
		fmt.Fprintf(&b, "; the container is %s (exit code %d)", state.Status, state.ExitCode)
	}
	if logs, err := c.Logs(ctx); err == nil {
		text, _ := io.ReadAll(logs) // what could be read of it
		_ = logs.Close()
		fmt.Fprintf(&b, "; its log ends: %s", text[max(0, len(text)-logBytes):])
	}
	return b.String()
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
// of the repository contains "mongo", as in mongo:8, mirror.example/library/mongo,
// mongodb/mongodb-community-server:8.0-ubi9 or percona/percona-server-mongodb:8.0.
func IsMongo(image string) bool {
	image, _, _ = strings.Cut(image, "@") // the digest
	last := path.Base(image)
	last, _, _ = strings.Cut(last, ":") // the tag
	return strings.Contains(last, "mongo")
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
