//go:build race

package integration

// raceDetector makes everything many times slower, so that all engines get the numbers
// of slow ones.
const raceDetector = true
