package consumer

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/proxy"
)

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// A role without the privilege for change streams is no reason to try every second, each time with writes for a seat.
func TestAWorkerWhoseChangeStreamsAreRefusedAsksSeldomAndSaysSo(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		px, err := proxy.Start(uri)
		require.NoError(t, err)
		t.Cleanup(px.Close)
		streams := px.Set(proxy.Rule{Command: "aggregate", Contains: "$changeStream", Do: proxy.Refuse, Code: 13, Times: -1})
		setup, _ := preparedAt(t, uri, db)
		log := new(lockedBuffer)
		logger := zerolog.New(log)
		g := newGauge(1)
		_, start := crewAt(t, px.URI(), db, 1, Config{Logger: logger}, map[string]func(*Task[int]){
			"other": func(*Task[int]) { g.during(func() {}) },
		})
		start()
		<-time.After(5 * time.Minute)
		require.Positive(t, streams.Sprung())
		require.LessOrEqual(t, streams.Sprung(), 11)
		require.Equal(t, 1, strings.Count(log.String(), "the database refuses change streams; polling"))
		putMany(t, setup, map[string]int{"other": 1}, nil)
		g.await(t)
	})
}
