package finish

import "iter"

// portionBytes is how much one call writes, unless a single end or step has more. A call ends after
// [health.CallTimeout]. A portion reaches the server within that time over a link of 2 Mbit/s. A batch of large
// results might never do so, and each new try would begin from the first one.
const portionBytes = 4 << 20

// portions divides a batch, in its order.
func portions[T any](batch []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		from, bytes := 0, 0
		for i, item := range batch {
			n := size(item)
			if i > from && bytes+n > portionBytes {
				if !yield(batch[from:i:i]) {
					return
				}
				from, bytes = i, 0
			}
			bytes += n
		}
		if from < len(batch) {
			yield(batch[from:])
		}
	}
}

// size is how many bytes of the end's own the server is sent.
func (e *End) size() int { return len(e.Out.Result.Value) + len(e.Out.Reason) }

// size is how many bytes of the step's own the server is sent.
func (i *stepItem) size() int { return len(i.step.Value.Value) }
