package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestABatchFitsItsBytes(t *testing.T) {
	var s sizes
	assert.Equal(t, 1000, s.fit(1000), "nothing is known")
	s.saw(1000, 1000*500)
	assert.Equal(t, 1000, s.fit(1000), "small ones")
	s.saw(4, 4*(4<<20))
	assert.Equal(t, 4, s.fit(1000), "a read that was cut off brought as many as fit")
	s.saw(2, 2*(40<<20))
	assert.Equal(t, 1, s.fit(1000), "one at least")
	s.saw(0, 0)
	assert.Equal(t, 1, s.fit(1000), "a read that found none says nothing")
	for range 20 {
		s.saw(10, 10*500)
	}
	assert.Equal(t, 1000, s.fit(1000), "it forgets")
}

// However sizes change from read to read: who asked for n and was cut off finds that not
// more than it got would have fit, so it knows that there is more.
func TestAReadThatWasCutOffIsKnown(t *testing.T) {
	var s sizes
	for _, each := range []int{300, 1 << 20, 700, 15 << 20, 5000, 100 << 10, 16 << 20} {
		n, bytes := 0, 0
		for n < 1000 && bytes < batchBytes {
			n, bytes = n+1, bytes+each
		}
		s.saw(n, bytes)
		if n < 1000 {
			assert.LessOrEqual(t, s.fit(1000), n, "of %d bytes each", each)
		}
	}
}
