package container

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/engine"
)

func TestMongoImagesAreKnownByTheirNames(t *testing.T) {
	for image, want := range map[string]bool{
		"mongo":                               true,
		"mongo:8":                             true,
		"mongo:8.0":                           true,
		"mirror.example:5000/library/mongo:7": true,
		"mongodb/mongodb-community-server:8.0-ubi9":         true,
		"mongo@sha256:0123456789abcdef":                     true,
		"mscheduler":                                        false,
		"mongo.example/mscheduler:test":                     false,
		"ghcr.io/somebody/ferret:latest":                    false,
		"percona/percona-server-mongodb:8.0":                true,
		"mirror.example:5000/mscheduler@sha256:0123mongo12": false,
	} {
		require.Equal(t, want, IsMongo(image), image)
	}
}

// madeImage says that the image of our own binary has been made; its tests run one after the other.
var madeImage bool

// ownImage is an image of our own static binary and nothing else.
func ownImage(t *testing.T) string {
	t.Helper()
	if err := dockerAnswers(t.Context()); err != nil {
		t.Skipf("Docker does not answer: %v", err)
	}
	const image = "mscheduler-test:latest"
	if madeImage {
		return image
	}
	dir := t.TempDir()
	// With the flags of `make build`, which has compiled all packages so.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "mscheduler"), "../../cmd/mscheduler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	mustRun(t, build)
	dockerfile := `FROM scratch
COPY mscheduler /mscheduler
EXPOSE 27017
ENTRYPOINT ["/mscheduler", "embedded", "--addr", "0.0.0.0:27017", "--allow-remote"]
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600))
	mustRun(t, exec.CommandContext(t.Context(), "docker", "build", "--quiet", "--tag", image, dir))
	madeImage = true
	return image
}

func mustRun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", cmd.Args, out)
}

func TestAnImageOfOurOwnBinaryTakesWrites(t *testing.T) {
	t.Setenv(ImageVariable, ownImage(t))
	d, err := Engine().Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	t.Run("write", func(t *testing.T) {
		things := engine.Fresh(t, engine.Connect(t, d.URI)).Collection("things")
		_, err = things.InsertOne(t.Context(), bson.M{"_id": 1})
		require.NoError(t, err)
	})
	require.NoError(t, d.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, engine.AwaitPrimary(ctx, d.URI), "the container has ended")
}

func TestAContainerThatTakesNoWritesIsReplacedOnceAndItsLogTold(t *testing.T) {
	ownImage(t) // so that the other's layers are there
	dir := t.TempDir()
	dockerfile := "FROM mscheduler-test:latest\nENTRYPOINT [\"/mscheduler\", \"embedded\", \"--addr\", \"127.0.0.1:27017\"]\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600))
	mustRun(t, exec.CommandContext(t.Context(), "docker", "build", "--quiet", "--tag", "mscheduler-test:deaf", dir))
	_, err := within(t.Context(), "mscheduler-test:deaf", 2*time.Second)
	require.ErrorContains(t, err, "the container is running")
	require.ErrorContains(t, err, "its log ends: ")
	require.ErrorContains(t, err, "mongodb://127.0.0.1:27017")
	require.Equal(t, 2, strings.Count(err.Error(), "starting a container of mscheduler-test:deaf"))
}

func TestAnImageThatIsNotThereIsAnErrorThatNamesIt(t *testing.T) {
	if err := dockerAnswers(t.Context()); err != nil {
		t.Skipf("Docker does not answer: %v", err)
	}
	_, err := Start(t.Context(), "127.0.0.1:1/nobody/nothing:none")
	require.ErrorContains(t, err, "127.0.0.1:1/nobody/nothing:none")
}
