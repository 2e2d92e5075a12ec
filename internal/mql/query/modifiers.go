package query

import (
	"encoding/binary"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// modifier is one operator at the path of the leaf n. It gets the old value,
// zero if there is none.
type modifier func(e *env, n *node, old bson.RawValue, at place) change

// modifiers parse the argument an operator has for the path of a leaf.
var modifiers = map[string]func(n *node, v bson.RawValue) modifier{
	"$set":         parseSet,
	"$setOnInsert": parseSet,
	"$unset":       func(*node, bson.RawValue) modifier { return unset },
	"$inc": func(n *node, v bson.RawValue) modifier {
		return parseArithmetic("$inc", value.Add, n, v, v)
	},
	"$mul": func(n *node, v bson.RawValue) modifier {
		return parseArithmetic("$mul", value.Mul, n, v, value.Int32(0))
	},
	"$min":         func(_ *node, v bson.RawValue) modifier { return bound(v, -1) },
	"$max":         func(_ *node, v bson.RawValue) modifier { return bound(v, 1) },
	"$currentDate": parseCurrentDate,
	"$rename":      parseRename,
	"$push":        parsePush,
	"$addToSet":    parseAddToSet,
	"$pop":         parsePop,
	"$pull":        parsePull,
	"$pullAll":     parsePullAll,
}

// reachable fails where nothing is and nothing can be created.
func reachable(n *node, at place) {
	if !at.viable {
		fail(mongoerr.PathNotViable, "Cannot use or create the path '%s': an element on the way is no document", n.path)
	}
}

func created(n *node, at place, v bson.RawValue) change {
	reachable(n, at)
	return put(v)
}

func parseSet(_ *node, v bson.RawValue) modifier {
	checkNames(v)
	return setTo(v)
}

func setTo(v bson.RawValue) modifier {
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		switch {
		case old.Type == 0:
			return created(n, at, v)
		case value.Identical(old, v):
			return change{}
		}
		return put(v)
	}
}

func unset(_ *env, _ *node, old bson.RawValue, _ place) change {
	if old.Type == 0 {
		return change{}
	}
	return change{act: remove}
}

type operation func(a, b bson.RawValue) (bson.RawValue, error)

// parseArithmetic is $inc and $mul; a missing value becomes the argument v, but
// of $mul zero of the type that v has.
func parseArithmetic(name string, do operation, n *node, v, start bson.RawValue) modifier {
	check(value.ClassOf(v.Type) == value.ClassNumber, mongoerr.TypeMismatch,
		"Cannot apply %s with non-numeric argument: {%s: %s}", name, n.path, v)
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		fresh := old.Type == 0
		switch {
		case fresh && name == "$inc":
			return created(n, at, v)
		case fresh:
			old = start
		case value.ClassOf(old.Type) != value.ClassNumber:
			fail(mongoerr.TypeMismatch, "Cannot apply %s to '%s' of type %s", name, n.path, typeName(old.Type))
		}
		sum, err := do(old, v)
		switch code := mongoerr.Code(err); {
		case code == mongoerr.BadValue:
			fail(code, "Failed to apply %s operations to current value (%s) of '%s': integer overflow", name, old, n.path)
		case err != nil:
			refuse("Decimal128 arithmetic")
		case fresh:
			return created(n, at, sum)
		case sum.Type == old.Type && !isNaN(sum) && value.Equal(sum, old):
			return change{}
		}
		return put(sum)
	}
}

// bound is $min (sign -1) and $max (1).
func bound(v bson.RawValue, sign int) modifier {
	checkNames(v)
	return func(_ *env, n *node, old bson.RawValue, at place) change {
		switch {
		case old.Type == 0:
			return created(n, at, v)
		case value.Compare(v, old)*sign <= 0:
			return change{}
		}
		return put(v)
	}
}

func parseCurrentDate(n *node, v bson.RawValue) modifier {
	kind := "date"
	if v.Type != bson.TypeBoolean {
		need(v.Type == bson.TypeEmbeddedDocument, "%s is not valid type for $currentDate", typeName(v.Type))
		kind = ""
		for it := value.NewIter(v.Value); it.Next(); {
			need(string(it.Key) == "$type", "Unrecognized $currentDate option: %s", it.Key)
			kind, _ = it.Value.StringValueOK()
		}
		need(kind == "date" || kind == "timestamp", "$type of $currentDate must be 'date' or 'timestamp' for %s", n.path)
	}
	return func(e *env, n *node, _ bson.RawValue, at place) change {
		if kind == "timestamp" {
			return created(n, at, e.ctx.tick())
		}
		b := binary.LittleEndian.AppendUint64(nil, uint64(e.ctx.Now))
		return created(n, at, bson.RawValue{Type: bson.TypeDateTime, Value: b})
	}
}

func timestamp(ts bson.Timestamp) bson.RawValue {
	b := binary.LittleEndian.AppendUint64(nil, uint64(ts.T)<<32|uint64(ts.I))
	return bson.RawValue{Type: bson.TypeTimestamp, Value: b}
}

// parseRename makes the leaf at the new name, of which v is the old one, removed
// by an unset of its own.
func parseRename(n *node, v bson.RawValue) modifier {
	to, from := n.path, v.StringValue()
	need(strings.IndexByte(to, 0) < 0, "The 'to' field for $rename cannot contain an embedded null byte")
	need(to != from && !strings.HasPrefix(from, to+".") && !strings.HasPrefix(to, from+"."),
		"The source and target field for $rename must differ, and not be on the same path: %s: %q", from, to)
	path := strings.Split(from, ".")
	for _, name := range append(strings.Split(to, "."), path...) {
		need(name != "$" && !isFilterName(name), "The source and target field for $rename may not be dynamic: %s", name)
	}
	return func(e *env, n *node, _ bson.RawValue, at place) change {
		v, inArray := value.Document(e.doc), false
		for _, name := range path {
			if v.Type == bson.TypeArray {
				_, ok := index(name)
				reachable(n, place{viable: ok})
				inArray = true
			}
			reachable(n, place{viable: value.IsObject(v)})
			if v, _ = value.Lookup(v.Value, name); v.Type == 0 {
				return change{}
			}
		}
		need(!inArray, "The source field cannot be an array element, '%s' in doc has an array", from)
		checkDepth(n.path, v)
		need(!at.inArray, "The destination field cannot be an array element, '%s' in doc has an array", n.path)
		return created(n, at, v)
	}
}
