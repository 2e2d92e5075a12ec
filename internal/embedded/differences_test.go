package embedded_test

import (
	"regexp"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// difference is a kind of command that secantusd and this server answer
// differently, and why this server is right, by MongoDB's manual or the recorded
// answers of MongoDB itself (testdata/cases.jsonl.gz).
type difference struct {
	name string
	why  string
	is   func(c compared) bool
}

// compared is what explains a difference. The text is of the command.
type compared struct {
	text         string
	ours, theirs reply
}

func (c compared) has(parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(c.text, p) {
			return true
		}
	}
	return false
}

var differences = []difference{
	{
		"conflict found early", "an update is checked before documents are looked for: paths of which one is another's beginning, a $rename onto its own path, and an argument of the wrong type fail even when nothing matches",
		func(c compared) bool {
			return c.ours.code == 40 || c.ours.code == 14 && c.theirs.code == 0 || c.ours.code == 2 && strings.Contains(c.ours.message, "for $rename")
		},
	},
	{
		"parallel arrays", "manual, Multikey Indexes: in a compound multikey index each document can have at most one indexed field whose value is an array; secantusd stores it",
		func(c compared) bool { return strings.Contains(c.ours.message, "parallel arrays") },
	},
	{
		"null keys of arrays", "manual, Unique Indexes: an element or document without the indexed field has the key null, which is unique like all others; secantusd leaves it out for arrays of other things",
		func(c compared) bool {
			return c.ours.code == 11000 && strings.Contains(c.ours.message, ":null") && !strings.Contains(c.ours.message, "_id_")
		},
	},
	{
		"path collision", "manual, $project: {a: 1, 'a.b': 1} fails with a path collision (31249) since MongoDB 4.4",
		func(c compared) bool { return c.ours.code == 31249 || c.ours.code == 31250 },
	},
	{
		"paths of expressions", "manual, Aggregation Expressions: \"$a.b\" on an array is the array of what its documents have at b; a number is the name of a field there, and what no element has leaves an empty array",
		func(c compared) bool { return c.has(`"$group"`) && c.has(`"$a.`, `"$b.`, `"$c.`, `"$arr.`) },
	},
	{
		"not viable", "$pop, $pull and $pullAll at a path that leads through a value that is no document fail with PathNotViable (28), also when another operator would fail too: paths are taken in their order",
		func(c compared) bool {
			return c.ours.code == 28 && (c.has(`"$pop"`, `"$pull"`, `"$pullAll"`))
		},
	},
	{
		"replacement takes only _id", "manual, Upsert with Replacement: of the filter only _id goes into the document, so what else it says cannot clash",
		func(c compared) bool { return c.theirs.code == 54 && c.ours.code != 54 },
	},
	{
		"$setOnInsert through arrays", "recorded: a path with $[] or $ needs an array there, under $setOnInsert too",
		func(c compared) bool { return c.has(`"$setOnInsert"`) && c.ours.code == 2 && c.has("$[", `.$"`) },
	},
	{
		"$all is $and", "manual, $all: {a: {$all: [v, w]}} is {$and: [{a: v}, {a: w}]}: elements of different documents may have them, one may be both, an array may be v or have it, and a missing field matches null",
		func(c compared) bool {
			less := len(c.theirs.text) < len(c.ours.text) || strings.Contains(c.theirs.text, `n {"$numberInt":"0"}`)
			return c.has(`"$all":[`) && c.ours.code == 0 && less || c.has(`"$all":[null`, `null]`, `"$all":[[`)
		},
	},
	{
		"refused here", "with its name, as doc.go lists it", func(c compared) bool { return c.ours.code == mongoerr.NotImplementedCode },
	},
	{
		"$mod of what is no long", "a number beyond 64 bits has no remainder and matches no $mod; secantusd takes the nearest long",
		func(c compared) bool { return c.has(`"$mod"`) && strings.Contains(c.theirs.text, "1E+300") },
	},
	{
		"filters of arrays see what was there", "manual, $[<identifier>]: it takes the elements that match, and a path written before does not make one match or not; secantusd looks again for each path",
		func(c compared) bool {
			return strings.Count(c.text, ".$[") > 1 && c.has("arrayFilters") && c.ours.code == 0 && c.theirs.code == 0
		},
	},
	{
		"$all of nothing in an array filter", "it is no condition on the element, so the filter has no identifier (9)",
		func(c compared) bool { return c.ours.code == 9 && c.has(`"$all":[]`) },
	},
	{
		"$ without an element", "manual, $: the condition must be on an element of the array; {a: {$type: 'array'}} is on the array",
		func(c compared) bool { return c.ours.code == 2 && c.has(`.$"`) && c.has(`"array"`) },
	},
	{
		"an array at a place", "recorded: 'a.0' is that element, and if it is an array, not what is in it",
		func(c compared) bool { return c.has(`"a.0":{"$mod"`, `"a.0":{"$gt`, `"a.0":{"$lt`) },
	},
	{
		"$elemMatch on arrays of arrays", "recorded: an element that is an array is a document with the fields 0, 1, ... to $elemMatch, so it lacks x, y and end",
		func(c compared) bool {
			return c.has(`"$elemMatch":{"x"`, `"$elemMatch":{"y"`, `"$elemMatch":{"end":null`)
		},
	},
	{
		"a place that an array lacks", "recorded: {'a.0': null} and {'a.1.x': null} match no array in which nothing is at that place",
		func(c compared) bool {
			return c.has(`"a.0`, `"a.1`, `"b.0`, `"b.1`, `"c.0`, `"c.1`, `"arr.0`, `"arr.1`, `"tags.0`, `"tags.1`) && c.has("null")
		},
	},
	{
		"first of equal numbers", "$min and $max keep the first of values that are equal, of whatever type",
		func(c compared) bool {
			same := strings.NewReplacer("numberInt", "", "numberLong", "", "numberDouble", "", "numberDecimal", "", ".0", "")
			return c.has(`"$group"`) && same.Replace(c.ours.text) == same.Replace(c.theirs.text)
		},
	},
	{
		"$sort of what is sorted", "recorded: a $push with $sort counts as a change, whatever it finds",
		func(c compared) bool { return c.has(`"$sort"`) && c.has(`"$push"`) && c.ours.after == c.theirs.after },
	},
	{
		"$rename of nothing to _id", "manual, $rename: if the field to rename does not exist, $rename does nothing; so it does not change the _id",
		func(c compared) bool { return c.has(`"$rename"`) && c.theirs.code == 66 && c.ours.code == 0 },
	},
	{
		"an equal value for _id", "MongoDB's source (modifier_node.cpp): an operator that writes an existing _id fails, whatever the value; secantusd compares values",
		func(c compared) bool { return c.ours.code == 66 && c.theirs.code == 0 && c.has(`"_id"`, `"_id.`) },
	},
	{
		"distinct from an index alone", "MongoDB's source (get_executor.cpp): a distinct that an index covers takes the index's null for a missing field; secantusd reads documents",
		func(c compared) bool {
			return c.has(`"distinct":"`) && strings.Contains(c.ours.text, "null") && !strings.Contains(c.theirs.text, "null")
		},
	},
	{
		"sums are exact", "$sum and $avg lose nothing on the way to their result, as MongoDB's, whose summation carries what each addition rounds off; secantusd's last digit differs",
		func(c compared) bool {
			round := func(s string) string {
				f, _ := strconv.ParseFloat(s, 64)
				return strconv.FormatFloat(f, 'g', 13, 64)
			}
			number := regexp.MustCompile(`\d+\.\d+(E\+\d+)?`)
			return c.has(`"$sum":"$`, `"$avg":"$`) &&
				number.ReplaceAllStringFunc(c.ours.text, round) == number.ReplaceAllStringFunc(c.theirs.text, round)
		},
	},
	{
		"two reasons to fail", "both fail and nothing is written; of several paths that cannot be written, this server names the first by name, as the recorded answers do",
		func(c compared) bool {
			return c.ours.code != 0 && c.theirs.code != 0 && c.ours.after == c.theirs.after && c.has(`"u":`, `"update":`)
		},
	},
	{
		"keys left behind", "secantusd finds a unique key of a document that is gone; that this server stores no key twice is what validate checks after each world",
		func(c compared) bool { return c.theirs.code == 11000 && c.ours.code == 0 },
	},
	{
		"sorted by two fields of an array", "recorded: the key is that of one element, not the least of each field",
		func(c compared) bool {
			return c.has(`"arr.v":{"$numberInt"`) && c.has(`"arr.k":{"$numberInt"`) && c.has(`"sort"`)
		},
	},
	{
		"refused by secantusd", "it says so, or calls an operator of MongoDB ($or within $elemMatch) unknown",
		func(c compared) bool {
			return strings.Contains(c.theirs.message, "not support") || strings.Contains(c.theirs.message, "unknown operator: $or")
		},
	},
}

// explain returns the name of the difference, "" when none explains it.
func explain(cmd bson.D, ours, theirs reply) string {
	c := compared{extJSON(cmd), ours, theirs}
	for _, d := range differences {
		if d.is(c) {
			return d.name
		}
	}
	return ""
}
