package input

import "strings"

// Names are the values that an error offers, as people list them.
func Names[T ~string](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return strings.Join(words, ", ")
}
