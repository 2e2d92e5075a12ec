package cli

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const defaultLevel = "warn"

// fileInterval is how often a process looks whether its configuration file has changed.
const fileInterval = time.Second

// sharedLevel is the level of all loggers of a process. It may change while they are in use.
type sharedLevel struct{ least atomic.Int32 }

// set says whether the level was another one.
func (l *sharedLevel) set(level zerolog.Level) (changed bool) {
	return l.least.Swap(int32(level)) != int32(level)
}

// Sample implements [zerolog.Sampler]: a line below the level costs nothing more than this.
func (l *sharedLevel) Sample(level zerolog.Level) bool { return level >= zerolog.Level(l.least.Load()) }

// parseLevel reads a level; name is what an error calls the setting.
func parseLevel(name, text string) (zerolog.Level, error) {
	switch text {
	case "off":
		return zerolog.Disabled, nil
	case "debug", "info", "warn", "error":
		return zerolog.ParseLevel(text)
	default:
		return 0, usage("%s is %q; want debug, info, warn, error or off", name, text)
	}
}

// logger writes what an operator should know to stderr: for people on a terminal, as
// JSON elsewhere.
func (a *app) logger() zerolog.Logger {
	log := zerolog.New(a.Stderr)
	if a.StderrTerminal {
		log = zerolog.New(zerolog.ConsoleWriter{Out: a.Stderr, TimeFormat: time.TimeOnly})
	}
	return log.Sample(&a.level).With().Timestamp().Logger()
}

// followFile reads the configuration file again when it has changed, and at a hangup (SIGHUP), until stop is
// called. The log level changes at once, unless the command line or a variable says it.
func (a *app) followFile() (stop func()) {
	if a.settings.name == "" {
		return func() {}
	}
	var hangups <-chan os.Signal
	stopHangups := func() {}
	if a.Hangups != nil {
		hangups, stopHangups = a.Hangups()
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(fileInterval)
		defer ticker.Stop()
		f := followed{app: a, log: a.logger(), file: a.settings, seen: a.settings.stamp}
		for {
			select {
			case <-ended:
				return
			case <-hangups:
				f.read()
			case <-ticker.C:
				f.look()
			}
		}
	})
	return func() {
		stopHangups()
		close(ended)
		wg.Wait()
	}
}

// followed is a configuration file that is read again.
type followed struct {
	app  *app
	log  zerolog.Logger
	file *settingsFile // the last one that was right
	seen fileStamp     // when it was read the last time
}

// look reads the file if it has changed. A file that is not there may be about to be replaced.
func (f *followed) look() {
	info, err := os.Stat(f.file.name)
	if err == nil && (fileStamp{info.ModTime(), info.Size()}) != f.seen {
		f.seen = fileStamp{info.ModTime(), info.Size()}
		f.read()
	}
}

func (f *followed) read() {
	file, err := readSettings(f.file.name)
	text := defaultLevel
	var level zerolog.Level
	if err == nil {
		name := "log-level"
		if s, ok := file.of(f.app.command)[name]; ok {
			name, text = s.Where()+": "+name, s.Values[0]
		}
		level, err = parseLevel(name, text)
	}
	if err != nil {
		f.log.Error().Err(err).Msg("could not read the changed configuration file; the settings stay as they are")
		return
	}
	if !f.app.byHand("log-level") && f.app.level.set(level) {
		f.log.Log().Str("log_level", text).Msg("the log level changed")
	}
	if later := f.beside(file); len(later) > 0 {
		f.log.Warn().Strs("settings", later).Msg("settings in the configuration file changed; they take effect at a restart")
	}
	f.file = file
}

// beside are the settings that changed, other than the log level.
func (f *followed) beside(file *settingsFile) (names []string) {
	now, before := file.of(f.app.command), f.file.of(f.app.command)
	for name, s := range now {
		if name != "log-level" && !slices.Equal(s.Values, before[name].Values) {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, still := now[name]; !still && name != "log-level" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
