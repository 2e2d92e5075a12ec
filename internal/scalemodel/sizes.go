package scalemodel

import (
	"fmt"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Life is the documents of a task as it waits, executes and has ended, and the updates between.
type Life struct {
	Waiting, Running, Ended bson.Raw
	Claim, End              bson.Raw
}

// NewLife makes the life of a task of the type, with so many bytes of arguments, that one worker
// runs once.
func NewLife(typ string, argsBytes int) (Life, error) {
	args, err := codec.EncodeValue("args", strings.Repeat("x", argsBytes), input.MaxArgsBytes)
	if err != nil {
		return Life{}, err
	}
	now := time.UnixMilli(1_700_000_000_000).UTC()
	sent := lifecycle.NewTask(lifecycle.Draft{Type: typ, Key: input.NewKey(now), Args: args}, now)
	eff := lifecycle.ResolveOptions(sent.Options)
	by := lifecycle.Claimant{WorkerID: "host-1234-00000000", ExecID: "00000000-0000-4000-8000-000000000000"}
	claimed, no := lifecycle.Claim(sent, by, eff, now)
	if no != "" {
		return Life{}, fmt.Errorf("a new task is not claimable: %s", no)
	}
	done, err := lifecycle.Finish(claimed, by.ExecID, lifecycle.Success(bson.RawValue{}), eff, now, 0)
	if err != nil {
		return Life{}, err
	}
	doc := func(t *model.Task) bson.Raw { return codec.AppendTask(nil, t) }
	return Life{doc(sent), doc(claimed), doc(done), codec.Diff(sent, claimed), codec.Diff(claimed, done)}, nil
}

// Keys are the keys of one document in one index.
type Keys struct {
	Index string
	Count int
	Bytes int // as MongoDB encodes them (KeyString), before prefixes are compressed
}

// KeysOf are the keys of a document of tasks in each index that holds it.
func KeysOf(doc bson.Raw) (all []Keys) {
	for _, ix := range store.Indexes("tasks") {
		if !ix.Holds(doc) {
			continue
		}
		k := Keys{Index: ix.Name, Count: 1}
		for _, field := range ix.Keys {
			v := doc.Lookup(field.Key)
			if list, ok := v.ArrayOK(); ok {
				if values, err := list.Values(); err == nil && len(values) > 0 {
					v, k.Count = values[0], len(values)
				}
			}
			k.Bytes += valueBytes(v)
		}
		k.Bytes = k.Count * (k.Bytes + keyEnd)
		all = append(all, k)
	}
	return all
}

// keyEnd is the end of a key, and the number of the document in a collection of many millions.
const keyEnd = 1 + 5

// valueBytes is the length of a value in a key: a byte for its type, then a string with its end, the
// eight bytes of a date, or the few of a small number.
func valueBytes(v bson.RawValue) int {
	switch v.Type { //nolint:exhaustive // the schema has no others
	case bson.TypeString:
		return 1 + len(v.StringValue()) + 1
	case bson.TypeDateTime, bson.TypeInt64:
		return 1 + 8
	default:
		return 1 + 1
	}
}

// What MongoDB configures for WiredTiger, in bytes: pages of collections and of indexes.
const (
	docPage   = 32 << 10
	indexPage = 16 << 10
	filled    = 0.75 // of a page, after splits
)

// Depth is how many pages lie between the root of a B-tree and an entry, both included, where the
// entries take so many bytes in all and a key that many.
func Depth(bytes float64, page, key int) int {
	leaves := bytes / (filled * float64(page))
	if leaves <= 1 {
		return 1
	}
	fanOut := filled * float64(indexPage) / float64(key+16)
	return 1 + int(math.Ceil(math.Log(leaves)/math.Log(fanOut)))
}
