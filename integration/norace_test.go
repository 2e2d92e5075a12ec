//go:build !race

package integration

// raceDetector is off: see race_test.go.
const raceDetector = false
