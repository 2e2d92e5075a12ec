//go:build !linux

package bench

import (
	"errors"
	"time"
)

// processTime reads /proc, which only Linux has.
func processTime(serverStatus) (time.Duration, error) {
	return 0, errors.New("this system does not report the times of other processes")
}
