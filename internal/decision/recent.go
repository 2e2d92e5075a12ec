package decision

import "github.com/mscheduler/mscheduler/internal/store"

// maxRecent bounds the documents that an engine remembers, in bytes of memory.
const maxRecent = 64 << 20

// recent are documents as this engine has left them, by id. The next decision about such a document
// needs no read, however large the document is. If somebody else has decided since, the guard of the
// write refuses that decision, and the document is read.
type recent[D any] struct {
	docs  map[string]D
	sizes map[string]int
	bytes int
}

func newRecent[D any]() recent[D] { return recent[D]{docs: map[string]D{}, sizes: map[string]int{}} }

// put remembers a document. Any others make room for it.
func (r *recent[D]) put(id string, doc D, size int) {
	r.forget(id)
	for other := range r.docs {
		if r.bytes+size <= maxRecent {
			break
		}
		r.forget(other)
	}
	r.docs[id], r.sizes[id] = doc, size
	r.bytes += size
}

func (r *recent[D]) forget(id string) {
	r.bytes -= r.sizes[id]
	delete(r.docs, id)
	delete(r.sizes, id)
}

// remember keeps a document as it was decided, unless something that it plans is not carried out yet: others may
// do that. Nor does it where what was carried out stands in the stored document, and no longer in this one: the next
// decision would not know that it has to leave.
func (d *Decider[D]) remember(w store.Decision[D]) {
	doc := w.After
	id, size := d.Documents.ID(doc), smallDocument
	if d.Size != nil {
		size = d.Size(doc)
	}
	_, all := d.known(doc)
	over := d.Over != nil && d.Over(doc)
	if planned := len(d.Documents.PlanIDs(doc)) > 0; over || planned && !all || !planned && w.Drop {
		d.recent.forget(id)
		return
	}
	d.recent.put(id, doc, size)
}

// smallDocument is the size of documents where [Config] does not tell it.
const smallDocument = 4 << 10
