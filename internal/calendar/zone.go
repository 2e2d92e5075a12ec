package calendar

import (
	"archive/zip"
	_ "embed" // the database below
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// The time zone database, as the Go project builds it of IANA's, and which of IANA's
// releases it is. `make zones` renews both.
var (
	//go:embed zoneinfo.zip
	zoneinfo string
	//go:embed zoneinfo.version
	zoneinfoVersion string
)

// ZonesVersion is the release of IANA's time zone database that this program carries, such
// as 2025c.
func ZonesVersion() string { return strings.TrimSpace(zoneinfoVersion) }

// Zone is a zone of the embedded time zone database, by its name, such as Europe/Berlin;
// "" is UTC. What the machine has, in $ZONEINFO or /usr/share/zoneinfo, is not looked at:
// time.LoadLocation prefers that, and then two engines on two machines would see a day's
// tick at two instants, and run it twice. "Local" is refused, because it depends on the
// machine, too.
func Zone(name string) (*time.Location, error) {
	switch name {
	case "", "UTC":
		return time.UTC, nil
	case "Local":
		return nil, errors.New(`the time zone "Local" depends on the machine`)
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	files, err := zoneFiles()
	if err != nil {
		return nil, err
	}
	file := files[name]
	if file == nil {
		return nil, fmt.Errorf("%q is not a zone of the time zone database %s", name, ZonesVersion())
	}
	data, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("reading the time zone %s: %w", name, err)
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("reading the time zone %s: %w", name, err)
	}
	known, _ := zones.LoadOrStore(name, zone)
	return known.(*time.Location), nil
}

// zones are those that were asked for: a *time.Location by its name. Only names of the
// database come in, so that it stays small.
var zones sync.Map

// zoneFiles are those of the database by their names.
var zoneFiles = sync.OnceValues(func() (map[string]*zip.File, error) {
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		return nil, fmt.Errorf("reading the embedded time zones: %w", err)
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			files[f.Name] = f
		}
	}
	return files, nil
})

func read(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err //nolint:wrapcheck // Zone does
	}
	defer r.Close()      //nolint:errcheck // it was read
	return io.ReadAll(r) //nolint:wrapcheck // Zone does
}
