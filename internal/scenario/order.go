package scenario

import "slices"

// Inversions is the share of pairs that are in the wrong order.
func Inversions(order []int) float64 {
	var count func(xs, spare []int) int
	count = func(xs, spare []int) int {
		if len(xs) < 2 {
			return 0
		}
		half := len(xs) / 2
		n := count(xs[:half], spare) + count(xs[half:], spare)
		left, right, merged := xs[:half], xs[half:], spare[:0]
		for len(left)+len(right) > 0 {
			if len(right) == 0 || len(left) > 0 && left[0] < right[0] {
				merged, left = append(merged, left[0]), left[1:]
			} else {
				merged, right, n = append(merged, right[0]), right[1:], n+len(left)
			}
		}
		copy(xs, merged)
		return n
	}
	n := len(order)
	return float64(count(slices.Clone(order), make([]int, 0, n))) / (float64(n) * float64(n-1) / 2)
}
