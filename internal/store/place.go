package store

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// place is where the next look at a queue begins: at the last task that the looks before it found, also if
// others have the same time. The zero value is the beginning.
type place struct {
	at   time.Time
	left bson.A // ids of tasks of that time
}

// leave leaves a task that was found out of the next looks.
func (p *place) leave(id string, at time.Time) {
	if at.Equal(p.at) { // those before it are left out
		p.left = append(p.left, id)
	}
}

// narrow is the condition of a look at what is there from the place on.
func (p *place) narrow(l look, field string) bson.D {
	if !p.at.IsZero() {
		l.from = p.at
	}
	filter := bson.D{d(field, l.upTo(l.until))}
	if len(p.left) > 0 {
		filter = append(filter, d("_id", bson.D{d("$nin", p.left)}))
	}
	return filter
}

// reach moves the place to the last task that a look found.
func (p *place) reach(last time.Time) {
	if !last.Equal(p.at) {
		p.at, p.left = last, nil
	}
}
