package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded"
)

// putMongodOnPath makes PATH hold a mongod, which is this test binary.
func putMongodOnPath(t *testing.T, how string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	script := "#!/bin/sh\nexec '" + self + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mongod"), []byte(script), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(pretend, how)
}

func start(t *testing.T, e Engine) *Deployment {
	t.Helper()
	d, err := e.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// ours are the engines that can be tried on any machine.
func ours(t *testing.T) map[string]Engine {
	putMongodOnPath(t, "well")
	return map[string]Engine{
		"process":  Mongod(),
		"embedded": Embedded(embedded.Options{Path: filepath.Join(t.TempDir(), "data.db")}),
	}
}

func TestAServerThatIsRestartedHasItsDataAndItsAddress(t *testing.T) {
	for name, e := range ours(t) {
		t.Run(name, func(t *testing.T) {
			d := start(t, e)
			uri := d.URI
			things := Fresh(t, Connect(t, uri)).Collection("things")
			_, err := things.InsertOne(t.Context(), bson.M{"_id": 1})
			require.NoError(t, err)
			first := d.PID()
			require.NoError(t, d.Restart(t.Context()))
			require.Equal(t, uri, d.URI)
			if name == "process" {
				require.NotEqual(t, first, d.PID())
			} else {
				require.Zero(t, d.PID())
			}
			n, err := things.CountDocuments(t.Context(), bson.M{})
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		})
	}
}

func TestAClosedServerAnswersNobodyAndLeavesNoFiles(t *testing.T) {
	putMongodOnPath(t, "well")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	d := start(t, Mongod())
	require.NotEmpty(t, entries(t, temp))
	require.NoError(t, d.Close())
	require.Empty(t, entries(t, temp))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, AwaitPrimary(ctx, d.URI), "waiting for a primary")
	require.Error(t, d.Restart(t.Context()))
	require.NoError(t, d.Close(), "closing twice is no error")
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	return found
}

func TestAServerDoesNotOutliveTheProcessThatStartedIt(t *testing.T) {
	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, sleeper.Start())
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o700))
	g := startGuard(sleeper.Process.Pid, dir)
	require.NoError(t, g.input.Close()) // as the end of this process does
	require.ErrorContains(t, sleeper.Wait(), "killed")
	require.NoError(t, g.cmd.Wait())
	require.NoDirExists(t, dir)
}

func TestAServerThatDiesAtItsStartIsReportedWithItsLastWords(t *testing.T) {
	putMongodOnPath(t, "broken")
	began := time.Now()
	_, err := Mongod().Start(t.Context())
	require.ErrorContains(t, err, "starting mongod")
	require.ErrorContains(t, err, "the pretended mongod is broken")
	require.Less(t, time.Since(began), startTime/2, "nobody waits for a server that has died")
}

func TestWhatIsNotAtHandSaysWhy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv(URIVariable, "")
	for _, e := range []Engine{URI(), Mongod(), Secantusd()} {
		_, err := e.Start(t.Context())
		var gone *MissingError
		require.ErrorAs(t, err, &gone)
		require.Equal(t, e.Name, gone.Engine)
		require.NotEmpty(t, gone.Reason)
	}
}

func TestTheFirstEngineAtHandIsTakenAndTheOthersAreNamed(t *testing.T) {
	var said strings.Builder
	broken := Engine{Name: "broken", Start: func(context.Context) (*Deployment, error) { return nil, errors.New("no image\nand more") }}
	t.Setenv("PATH", t.TempDir())
	s := Shared{Engines: []Engine{Mongod(), broken, Embedded(embedded.Options{})}, Announce: &said}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	a, b := s.DB(t), s.DB(t)
	require.NotEqual(t, a.Name(), b.Name())
	require.Equal(t, "testing on embedded (mongod: not on PATH; broken: no image)\n", said.String())
}

// Another engine in its place would pass tests that the one asked for may fail.
func TestTheEngineThatTheEnvironmentAsksForIsTakenOrTheTestsFail(t *testing.T) {
	t.Setenv("MSCHEDULER_TEST_ASKS", "an image")
	asked := Engine{Name: "asked", Variable: "MSCHEDULER_TEST_ASKS", Start: func(context.Context) (*Deployment, error) {
		return nil, missing("asked", "Docker does not answer")
	}}
	s := Shared{Engines: []Engine{Embedded(embedded.Options{}), asked}}
	_, err := s.choose(t.Context())
	require.EqualError(t, err, "asked: Docker does not answer")
	t.Setenv("MSCHEDULER_TEST_ASKS", "")
	d, err := s.choose(t.Context())
	require.NoError(t, err)
	require.Equal(t, "embedded", d.Engine)
	require.NoError(t, d.Close())
}

func TestADeploymentThatIsNamedMustAnswer(t *testing.T) {
	t.Setenv(URIVariable, "mongodb://127.0.0.1:1/?directConnection=true&serverSelectionTimeoutMS=50")
	var said strings.Builder
	s := Shared{Engines: []Engine{URI(), Embedded(embedded.Options{})}, Announce: &said}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := s.choose(ctx)
	require.ErrorContains(t, err, URIVariable)
	require.Equal(t, "waiting for 127.0.0.1:1, which MSCHEDULER_MONGODB_URI names\n", said.String())
}

// A minute of each run of the tests would be lost to a variable that names a server of yesterday.
func TestADeploymentThatRefusesConnectionsIsNotWaitedForLong(t *testing.T) {
	t.Setenv(URIVariable, "mongodb://127.0.0.1:1,127.0.0.1:2/?replicaSet=rs")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := URI().Start(t.Context())
		require.ErrorContains(t, err, "127.0.0.1:1: connect")
		require.ErrorContains(t, err, "127.0.0.1:2: connect")
		require.ErrorContains(t, err, "unset "+URIVariable)
		require.Equal(t, listenTime, time.Since(began))
	})
}

func TestADeploymentThatBeginsToListenIsWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		go func() {
			time.Sleep(listenTime / 2)
			if l, err := net.Listen("tcp", addr); err == nil { // else somebody else listens there
				<-t.Context().Done()
				assert.NoError(t, l.Close())
			}
		}()
		require.NoError(t, awaitListener(t.Context(), "mongodb://127.0.0.1:1,"+addr+"/?replicaSet=rs"))
		require.Less(t, time.Since(began), listenTime)
	})
}
