// Package view shows stored documents as JSON: to the command line with -o json, and to the clients of the
// REST API. Both show the same fields by the same names, and no secret.
package view

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Task is a task's document as JSON, or a life's, with what is computed when it is read:
// exec_time_ms, where an execution has ended.
func Task(raw bson.Raw) (json.RawMessage, error) {
	t, err := store.Decode(raw)
	if err != nil {
		return nil, err
	}
	if took := lifecycle.ExecTime(t); took > 0 {
		return Document(raw, "id", bson.E{Key: "exec_time_ms", Value: took.Milliseconds()})
	}
	return Document(raw, "id")
}

// Event is an event of a task as people may see it.
func Event(e model.TaskEvent) model.TaskEvent {
	e.ExecID = input.ShownExecID(e.ExecID)
	return e
}

// Document is a stored document as JSON, unknown fields and all, with secrets hidden, its
// primary key by the name, and with what is computed.
func Document(raw bson.Raw, key string, computed ...bson.E) (json.RawMessage, error) {
	var doc bson.D
	if err := bson.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("reading a document: %w", err)
	}
	secret.Hide(doc)
	for i := range doc {
		if doc[i].Key == "_id" {
			doc[i].Key = key
		}
	}
	out, err := bson.Marshal(append(doc, computed...))
	if err != nil {
		return nil, fmt.Errorf("reading a document: %w", err)
	}
	return codec.DocumentJSON(out), nil
}

// Stored is a value as [Document] of the document that is stored of it.
func Stored(v any, key string, computed ...bson.E) (json.RawMessage, error) {
	raw, err := Encode(v)
	if err != nil {
		return nil, err
	}
	return Document(raw, key, computed...)
}

// registry learns each type once: one for each document would take ten times as long.
var registry = codec.Registry()

// Encode is the document that is stored of a value, with its secrets.
func Encode(v any) (bson.Raw, error) {
	var b bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&b))
	enc.SetRegistry(registry)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing a document: %w", err)
	}
	return b.Bytes(), nil
}
