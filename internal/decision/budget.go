package decision

import "cmp"

const (
	// perLook is how many due documents, and how many ends, a look reads at a time.
	perLook = 500
	// Where documents may be large, a look decodes at most lookBytes of them, and the next look reads the rest. It asks
	// for firstLook documents at first, and then for as many as the sizes of the last ones allow, at most mostLarge.
	lookBytes = 16 << 20
	firstLook = 20
	mostLarge = 64
	// decoded is how many times as large a document is in memory as it is stored, about.
	decoded = 4
)

// budget bounds what is read at once of documents that may be large.
type budget struct {
	most        int // documents; 0 = firstLook
	seen, bytes int // since begin
	left        bool
}

// limit is how many documents to ask for.
func (b *budget) limit() int { return cmp.Or(b.most, firstLook) }

// begin begins to read anew.
func (b *budget) begin() {
	switch {
	case b.bytes > lookBytes:
		b.most = max(1, b.seen*lookBytes/b.bytes)
	case b.seen >= b.limit():
		b.most = min(2*b.limit(), mostLarge)
	}
	b.seen, b.bytes, b.left = 0, 0, false
}

// read says whether a document of that size is still to be decoded.
func (b *budget) read(bytes int) bool {
	b.seen++
	b.bytes += bytes
	if b.seen > 1 && b.bytes > lookBytes {
		b.left = true
	}
	return !b.left
}
