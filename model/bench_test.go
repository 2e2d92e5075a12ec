package model

import (
	"testing"
	"time"
)

func benchTask() (*Task, Effective) {
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
	b.ReportAllocs()
	for b.Loop() {
		Diff(t, c)
	}
}

func BenchmarkDiffOfAFinish(b *testing.B) {
	t, eff := benchTask()
	t, _ = Claim(t, Claimant{WorkerID: "w", ExecID: "e"}, eff, epoch)
	c, _ := Finish(t, "e", Outcome{}, eff, epoch.Add(time.Second), 0.5)
	b.ReportAllocs()
	for b.Loop() {
		Diff(t, c)
	}
}

func BenchmarkResolveOptions(b *testing.B) {
	o := Options{WorkerTimeout: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		ResolveOptions(o, Options{}, Options{})
	}
}
