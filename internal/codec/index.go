package codec

import (
	"strconv"
)

// indexes are the keys of the first elements of a BSON array: a batch names a thousand
// ids, and each number would be a string of its own.
var indexes = func() (out [5000]string) {
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}()

// Index is the key of element i of a BSON array: i in decimal.
func Index(i int) string {
	if i >= 0 && i < len(indexes) {
		return indexes[i]
	}
	return strconv.Itoa(i)
}
