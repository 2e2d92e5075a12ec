package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/schollz/progressbar/v3"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
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
)

// fileSend is one `send --file`.
type fileSend struct {
	file     string // - for stdin
	defaults *form.Task
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
	bar *progressbar.ProgressBar
	fileResult

	created map[string]string // a task that did not exist, by type; at most maxTypesChecked
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
	f.file = fileName(f.file)
	s := &sender{app: a, fileSend: f, created: map[string]string{}, bar: a.bar(size, "sending", progressbar.OptionShowBytes(true))}
	if !f.dryRun {
		if s.c, err = a.connect(ctx); err != nil {
			return err
		}
	}
	err = s.stream(ctx, in)
	a.counts(int64(s.Created))
	_ = s.bar.Finish() // what it draws is not the result
	if s.c != nil {
		for _, typ := range slices.Sorted(maps.Keys(s.created)) {
			a.warnUntaken(ctx, s.c, typ, s.created[typ])
		}
	}
	return s.report(err)
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
		if errors.Is(rerr, context.Canceled) {
			return rerr
		}
		if rerr != nil && !end {
			return errors.Join(fmt.Errorf("reading %s: %w", s.file, rerr), s.flush(ctx))
		}
		_ = s.bar.Add(read)
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
		s.refuse(fmt.Errorf("%s:%d: more than %d bytes", s.file, n, maxLineBytes))
		return
	}
	doc, err := form.ReadJSON[form.Task](s.file, n, line, "a task")
	if err != nil {
		s.refuse(err)
		return
	}
	form.Fill(doc.Form, s.defaults)
	it, err := s.item(doc.Form, s.check)
	if err != nil {
		s.refuse(doc.Locate(err))
		return
	}
	s.items, s.lines = append(s.items, it), append(s.lines, n)
	s.bytes += read
}

// refuse names a wrong line.
func (s *sender) refuse(err error) {
	s.Refused++
	switch {
	case s.Refused <= shownErrors:
		_ = s.bar.Clear() // so that the message has a line of its own
		s.say("%s", errorText(err))
	case s.Refused == shownErrors+1:
		s.say("... further invalid lines are only counted")
	}
}

// flush sends the batch, whose lines are right.
func (s *sender) flush(ctx context.Context) error {
	defer func() { s.items, s.lines, s.bytes = s.items[:0], s.lines[:0], 0 }()
	if s.dryRun || len(s.items) == 0 {
		return nil
	}
	sent, err := s.c.producer.SendManyJSON(ctx, s.items)
	var many *producer.ManyError
	if !errors.As(err, &many) {
		s.count(sent)
		return err
	}
	for i := range sent {
		if many.Failed[i] == nil {
			s.count(sent[i : i+1])
		}
	}
	first := slices.Min(slices.Collect(maps.Keys(many.Failed)))
	return fmt.Errorf("%s:%d: %w", s.file, s.lines[first], many.Failed[first])
}

func (s *sender) count(sent []producer.Sent) {
	for _, x := range sent {
		if x.Created {
			s.Created++
			if _, typ, _, err := input.ParseTaskID(x.ID); err == nil && len(s.created) < maxTypesChecked {
				s.created[typ] = x.ID
			}
		} else {
			s.Existed++
		}
	}
}

// report prints what became of the file and decides how the command ends.
func (s *sender) report(err error) error {
	right := s.Lines - s.Refused
	text := fmt.Sprintf("%s sent: %d new, %d with an existing key; %s refused\n",
		human.Plural(s.Created+s.Existed, "task", "tasks"), s.Created, s.Existed, human.Plural(s.Refused, "line", "lines"))
	if s.dryRun {
		text = fmt.Sprintf("%s: %d valid, %d invalid; nothing was sent\n", human.Plural(s.Lines, "task", "tasks"), right, s.Refused)
	}
	perr := s.result(s.fileResult, text)
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
		return usage("%s contains no task", s.file)
	}
	return nil
}
