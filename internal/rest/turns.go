package rest

import "context"

// turns bounds how many requests do something expensive at a time. Its capacity is that number.
type turns chan struct{}

// within does it when it is the request's turn.
func (t turns) within(ctx context.Context, do func() error) error {
	select {
	case t <- struct{}{}:
		defer func() { <-t }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// countsAtOnce bounds the counts of tasks of a process: where no index covers the filter, each one reads all tasks.
	countsAtOnce = 4
	// forecastsAtOnce bounds the forecasts of rules: each one may compute for seconds.
	forecastsAtOnce = 1
)
