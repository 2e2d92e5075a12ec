package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const (
	batchLines   = 2000
	batchBytes   = 8 << 20
	maxLineBytes = 4 << 20
	// shownErrors bounds how many wrong lines are named one by one.
	shownErrors = 20
	// maxTypesChecked bounds for how many types of a file is asked whether a worker serves them.
	maxTypesChecked = 20
	// barThrottle is how often the progress bar is drawn.
	barThrottle = 100 * time.Millisecond
)

// fileSend is one `send --file`.
type fileSend struct {
	file     string // - for stdin
	defaults *taskSpec
	check    bool // the arguments of built-in types
	dryRun   bool
}

// fileResult says what became of the lines of a file.
type fileResult struct {
	Lines   int `json:"lines"`   // that held a task, right or wrong
	Created int `json:"created"` // new lives
	Existed int `json:"existed"` // the key was there
	Refused int `json:"refused"` // wrong lines, not sent
}

// sender streams lines to the producer in batches.
type sender struct {
	*app
	fileSend
	c   *connection // nil for a dry run
	p   *producer.Producer
	bar *progressbar.ProgressBar // nil without a terminal
	fileResult

	created map[string]bool // the types of tasks that did not exist; at most maxTypesChecked
	items   []producer.JSONItem
	lines   []int // the line of each item
	bytes   int
}

func (a *app) sendFile(ctx context.Context, f fileSend) error {
	in, size, err := a.openInput(f.file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	s := &sender{app: a, fileSend: f, created: map[string]bool{}}
	if f.dryRun {
		s.p, err = a.dryProducer()
	} else {
		s.c, s.p, err = a.connectProducer(ctx)
	}
	if err != nil {
		return err
	}
	if a.StderrTerminal {
		s.bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(a.Stderr), progressbar.OptionSetDescription("sending"),
			progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(barThrottle))
	}
	err = s.stream(ctx, in)
	if s.bar != nil {
		_ = s.bar.Finish() // what it draws is not the result
	}
	if s.c != nil {
		a.warnUnserved(ctx, s.c, s.p, slices.Sorted(maps.Keys(s.created)))
	}
	return s.report(err)
}

// openInput opens the file; size is -1 when it is not known.
func (a *app) openInput(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(a.Stdin), -1, nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, usage("--file: there is no file %s", name)
	}
	if err != nil {
		return nil, 0, usage("--file: %w", err)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, errors.Join(fmt.Errorf("reading %s: %w", name, err), f.Close())
	case st.IsDir():
		return nil, 0, errors.Join(usage("--file: %s is a directory", name), f.Close())
	case !st.Mode().IsRegular():
		return f, -1, nil
	}
	return f, st.Size(), nil
}

// stream reads lines to the end. An error other than of a line ends it.
func (s *sender) stream(ctx context.Context, in io.Reader) error {
	r := bufio.NewReaderSize(in, 256<<10)
	for n := 1; ; n++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		line, long, read, rerr := readLine(r)
		end := errors.Is(rerr, io.EOF)
		if rerr != nil && !end {
			return errors.Join(fmt.Errorf("reading %s: %w", s.file, rerr), s.flush(ctx))
		}
		if s.bar != nil {
			_ = s.bar.Add(read) // what it draws is not the result
		}
		s.take(n, line, long, read)
		if end || len(s.items) >= batchLines || s.bytes >= batchBytes {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

// readLine reads a line without its end. One that is too long is read to its end and
// comes without its text.
func readLine(r *bufio.Reader) (line []byte, long bool, read int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		read += len(part)
		if long = long || len(line)+len(part) > maxLineBytes; !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			line = nil
		}
		return bytes.TrimSpace(line), long, read, err
	}
}

// take adds the task of a line to the batch, or refuses it.
func (s *sender) take(n int, line []byte, long bool, read int) {
	if len(line) == 0 && !long {
		return // an empty line says nothing
	}
	s.Lines++
	if long {
		s.refuse(n, fmt.Errorf("has more than %d bytes", maxLineBytes))
		return
	}
	spec, err := parseSpec(line)
	if err != nil {
		s.refuse(n, err)
		return
	}
	spec.or(s.defaults)
	it, err := spec.item(s.check)
	if err != nil {
		s.refuse(n, err)
		return
	}
	s.items, s.lines = append(s.items, it), append(s.lines, n)
	s.bytes += read
}

// refuse names a wrong line.
func (s *sender) refuse(n int, err error) {
	s.Refused++
	switch {
	case s.Refused <= shownErrors:
		if s.bar != nil {
			_ = s.bar.Clear() // so that the message has a line of its own
		}
		s.say("line %d: %s", n, errorText(err))
	case s.Refused == shownErrors+1:
		s.say("... more wrong lines are only counted")
	}
}

// flush sends the batch. Lines that the producer refuses are taken out, named, and the
// rest sent again: it checks all before it writes any.
func (s *sender) flush(ctx context.Context) error {
	defer func() { s.items, s.lines, s.bytes = s.items[:0], s.lines[:0], 0 }()
	for len(s.items) > 0 {
		sent, err := s.p.SendManyJSON(ctx, s.items)
		var many *producer.ManyError
		if err != nil && !errors.As(err, &many) {
			return err
		}
		if many == nil {
			s.count(sent)
			return nil
		}
		nothingSent, err := s.dropFailed(many)
		if err != nil || !nothingSent {
			for i := range sent {
				if many.Failed(i) == nil {
					s.count(sent[i : i+1])
				}
			}
			return err
		}
	}
	return nil
}

// dropFailed takes the failed items out of the batch. It returns the first error that
// is not the line's fault, and whether nothing of the batch was written.
func (s *sender) dropFailed(many *producer.ManyError) (nothingSent bool, err error) {
	failed := map[int]bool{}
	for _, it := range many.Items {
		if !errors.Is(it.Err, model.ErrInvalid) {
			return false, fmt.Errorf("line %d: %w", s.lines[it.Index], it.Err)
		}
		failed[it.Index] = true
		s.refuse(s.lines[it.Index], it.Err)
	}
	items, lines := s.items[:0], s.lines[:0]
	for i := range s.items {
		if !failed[i] {
			items, lines = append(items, s.items[i]), append(lines, s.lines[i])
		}
	}
	s.items, s.lines = items, lines
	return true, nil
}

func (s *sender) count(sent []producer.Sent) {
	for _, x := range sent {
		if x.Created {
			s.Created++
			if _, typ, _, err := input.ParseTaskID(x.ID); err == nil && len(s.created) < maxTypesChecked {
				s.created[typ] = true
			}
		} else {
			s.Existed++
		}
	}
}

// report prints what became of the file and decides how the command ends.
func (s *sender) report(err error) error {
	right := s.Lines - s.Refused
	if s.dryRun {
		s.Created, s.Existed = 0, 0
	}
	var perr error
	switch {
	case s.asJSON():
		perr = s.printJSON(s.fileResult)
	case s.dryRun:
		perr = s.printf("%s: %d right, %d wrong; nothing was sent\n", human.Plural(s.Lines, "task", "tasks"), right, s.Refused)
	default:
		perr = s.printf("%s sent: %d new, %d with a key that existed; %s refused\n",
			human.Plural(s.Created+s.Existed, "task", "tasks"), s.Created, s.Existed, human.Plural(s.Refused, "line", "lines"))
	}
	switch {
	case err != nil:
		if errors.Is(err, context.Canceled) {
			s.say("stopped before the end of the file")
		}
		return err
	case perr != nil:
		return perr
	case s.Refused > 0:
		return quiet(ExitUsage)
	case s.Lines == 0:
		return usage("%s holds no task", s.file)
	}
	return nil
}
