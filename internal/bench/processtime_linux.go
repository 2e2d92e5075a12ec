package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks is the unit of times in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = time.Second / 100

// startTolerance is how far the ages of a process may differ that /proc and the server
// report.
const startTolerance = 10 * time.Second

// errElsewhere is the reason why a server's processor time is unknown: no process of this
// machine has its pid, name and age. It runs on another machine, or in another pid namespace.
var errElsewhere = errors.New("the server does not run on this machine")

// processTime returns the processor time of a server that runs on this machine.
func processTime(s serverStatus) (time.Duration, error) {
	if s.PID <= 0 {
		return 0, errors.New("the server does not report its process id")
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	if err != nil {
		return 0, errElsewhere
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("reading this machine's uptime: %w", err)
	}
	return processTimeOf(s, string(stat), string(uptime))
}

// processTimeOf judges the content of /proc/PID/stat and /proc/uptime. Another process may
// have the server's pid, so its name and its age must be the server's, too.
func processTimeOf(s serverStatus, stat, uptime string) (time.Duration, error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return 0, errors.New("/proc/PID/stat has an unknown form")
	}
	name, fields := stat[open+1:end], strings.Fields(stat[end+1:])
	if len(fields) < 20 {
		return 0, errors.New("/proc/PID/stat has an unknown form")
	}
	number := func(field int) time.Duration { // counted from 1, as proc(5) does
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return time.Duration(n) * ticks
	}
	first, _, _ := strings.Cut(uptime, " ")
	up, err := strconv.ParseFloat(strings.TrimSpace(first), 64)
	if err != nil {
		return 0, fmt.Errorf("reading this machine's uptime: %w", err)
	}
	age := time.Duration(up*float64(time.Second)) - number(22)
	base := filepath.Base(s.Process)
	if name != base[:min(len(base), 15)] || (age-time.Duration(s.Uptime)*time.Millisecond).Abs() > startTolerance {
		return 0, errElsewhere
	}
	return number(14) + number(15), nil
}
