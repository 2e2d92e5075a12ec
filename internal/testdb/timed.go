package testdb

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchTasks is how many tasks a benchmark is among: MSCHEDULER_BENCH_TASKS, or 100,000.
func BenchTasks(b *testing.B) int {
	b.Helper()
	given := os.Getenv("MSCHEDULER_BENCH_TASKS")
	if given == "" {
		return 100_000
	}
	n, err := strconv.Atoi(given)
	if err != nil {
		b.Fatalf("MSCHEDULER_BENCH_TASKS: %v", err)
	}
	return n
}

// Timed runs a benchmark of requests. It tells the median and the 99th percentile of their time and, on Linux, the
// processor time of each, which other programs change little. The processor time includes that of the embedded server.
func Timed(b *testing.B, request func()) {
	b.Helper()
	cpu := cpuTime()
	took := make([]time.Duration, 0, b.N)
	for range b.N {
		began := time.Now()
		request()
		took = append(took, time.Since(began))
	}
	cpu = cpuTime() - cpu
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	if cpu > 0 {
		b.ReportMetric(ms(cpu)/float64(b.N), "cpu-ms")
	}
}

// cpuTime is the processor time of this process so far, to ten milliseconds; 0 where the system does not say it so.
func cpuTime() time.Duration {
	stat, err := os.ReadFile("/proc/self/stat")
	_, after, _ := strings.Cut(string(stat), ") ") // the name of the program ends there
	fields := strings.Fields(after)
	if err != nil || len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
