package lifecycle

import (
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/model"
)

// LateError is the [model.ErrFenced] of a parked execution whose completion came too late.
type LateError struct {
	Until time.Time // when its time was over, by the database's clock
}

func (e *LateError) Error() string {
	return fmt.Sprintf("%v: no completion arrived before %s", model.ErrFenced, e.Until.UTC().Format(clock.Format))
}

// Is makes errors.Is(err, model.ErrFenced) true.
func (e *LateError) Is(target error) bool { return target == model.ErrFenced }
