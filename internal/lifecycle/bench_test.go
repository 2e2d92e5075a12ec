package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func benchTask() (*model.Task, Effective) {
	t := NewTask(Draft{Type: "email.send", Key: "k"}, epoch)
	return t, ResolveOptions(t.Options)
}

func BenchmarkClaim(b *testing.B) {
	t, eff := benchTask()
	b.ReportAllocs()
	for b.Loop() {
		if c, _ := Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch); c == nil {
			b.Fatal("refused")
		}
	}
}

func BenchmarkFinish(b *testing.B) {
	t, eff := benchTask()
	t, _ = Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch)
	now := epoch.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Finish(t, "e", Outcome{}, eff, now, 0.5); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiffOfAClaim(b *testing.B) {
	t, eff := benchTask()
	c, _ := Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = codec.AppendDiff(dst[:0], t, c)
	}
}

func BenchmarkDiffOfAFinish(b *testing.B) {
	t, eff := benchTask()
	t, _ = Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch)
	c, _ := Finish(t, "e", Outcome{}, eff, epoch.Add(time.Second), 0.5)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = codec.AppendDiff(dst[:0], t, c)
	}
}

func BenchmarkResolveOptions(b *testing.B) {
	o := model.Options{WorkerTimeout: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		ResolveOptions(o, model.Options{}, model.Options{})
	}
}

// benchBatch is what a full batch writes or reads.
const benchBatch = 1000

func benchBatchOf(b *testing.B, change func(*model.Task) *model.Task) []*model.Task {
	b.Helper()
	args, err := codec.EncodeValue("args", map[string]any{"user": "ann", "pad": strings.Repeat("x", 100)}, input.MaxArgsBytes)
	require.NoError(b, err)
	out := make([]*model.Task, benchBatch)
	for i := range out {
		out[i] = change(NewTask(Draft{Type: "email.send", Key: fmt.Sprintf("key-%06d", i), Args: args}, epoch))
	}
	return out
}

func BenchmarkEncodeABatch(b *testing.B) {
	tasks := benchBatchOf(b, func(t *model.Task) *model.Task { return t })
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range tasks {
			dst = codec.AppendTask(dst[:0], t)
		}
	}
}

func BenchmarkDecodeABatch(b *testing.B) {
	benchDecode(b, func(t *model.Task) *model.Task { return t })
}

// What pings, takeovers and lists read.
func BenchmarkDecodeABatchThatRuns(b *testing.B) {
	eff := ResolveOptions(model.Options{})
	benchDecode(b, func(t *model.Task) *model.Task {
		t, _ = Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch)
		return t
	})
}

func benchDecode(b *testing.B, change func(*model.Task) *model.Task) {
	b.Helper()
	var docs []bson.Raw
	for _, t := range benchBatchOf(b, change) {
		docs = append(docs, codec.AppendTask(nil, t))
	}
	b.ReportAllocs()
	for b.Loop() {
		var r codec.TaskReader
		for _, d := range docs {
			if _, err := r.Read(d); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// What a worker computes for a full batch between its fetch and its last end.
func BenchmarkClaimAndFinishABatch(b *testing.B) {
	tasks := benchBatchOf(b, func(t *model.Task) *model.Task { return t })
	eff := ResolveOptions(model.Options{})
	now := epoch.Add(time.Second)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range tasks {
			claimed, _ := Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch)
			finished, err := Finish(claimed, "e", Outcome{}, eff, now, 0.5)
			if err != nil {
				b.Fatal(err)
			}
			dst = codec.AppendDiff(codec.AppendDiff(dst[:0], t, claimed), claimed, finished)
		}
	}
}

func BenchmarkEncodeArguments(b *testing.B) {
	args := struct {
		User string `json:"user"`
		Pad  string `json:"pad"`
	}{"ann", strings.Repeat("x", 100)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := codec.EncodeValue("args", args, input.MaxArgsBytes); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeArguments(b *testing.B) {
	v, err := codec.EncodeValue("args", map[string]any{"user": "ann", "pad": strings.Repeat("x", 100)}, input.MaxArgsBytes)
	require.NoError(b, err)
	var args struct {
		User string `json:"user"`
		Pad  string `json:"pad"`
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := codec.DecodeValue(v, &args); err != nil {
			b.Fatal(err)
		}
	}
}
