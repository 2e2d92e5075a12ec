package cli

import (
	"errors"
	"os"
	"runtime/pprof"
	"strings"
)

// benchProfile writes a CPU profile of each part of a bench while it measures: the first
// to the file that was named, further ones beside it.
type benchProfile struct {
	file   *os.File // of the first, made before anything is measured
	name   string
	failed error
}

func newBenchProfile(name string) (*benchProfile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, usage("--cpuprofile: %w", err)
	}
	return &benchProfile{file: f, name: name}, nil
}

// worker names the profile of a worker process, beside that of its part.
func (p *benchProfile) worker(part, id string) string { return p.beside(part + "-" + id) }

func (p *benchProfile) beside(what string) string {
	return p.name + "." + strings.ReplaceAll(what, "/", "-")
}

// measure starts the profile of a part; the returned function ends it.
func (p *benchProfile) measure(part string) func() {
	f := p.file
	p.file = nil
	if f == nil {
		var err error
		if f, err = os.Create(p.beside(part)); err != nil {
			p.failed = errors.Join(p.failed, err)
			return func() {}
		}
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		p.failed = errors.Join(p.failed, err, f.Close())
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		p.failed = errors.Join(p.failed, f.Close())
	}
}
