package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The rule by which MongoDB merges ranges of the index: with the full sort the priority must
// be a range, or have no condition at all; as a point it must be left out of the sort.
func TestPrioritiesAreNamedSoThatNothingIsSorted(t *testing.T) {
	full, byTime := bson.D{d("priority", -1), d("due_at", 1)}, bson.D{d("due_at", 1)}
	now := at(10_000)
	for name, c := range map[string]struct {
		priorities []int
		from       time.Time
		priority   any // of the filter; nil = no condition
		due        bson.D
		sort       bson.D
	}{
		"all":              {nil, time.Time{}, nil, bson.D{d("$lte", now)}, full},
		"one":              {[]int{5}, time.Time{}, 5, bson.D{d("$lte", now)}, byTime},
		"one, with bound":  {[]int{0}, at(1), 0, bson.D{d("$gte", at(1)), d("$lte", now)}, byTime},
		"two":              {[]int{5, 6}, at(1), bson.D{d("$gte", 5), d("$lte", 6)}, bson.D{d("$gte", at(1)), d("$lte", now)}, full},
		"several and gaps": {[]int{0, 3, 9}, time.Time{}, bson.D{d("$gte", 0), d("$lte", 9)}, bson.D{d("$lte", now)}, full},
	} {
		t.Run(name, func(t *testing.T) {
			filter, sort := dueQuery([]string{"a", "b"}, []string{"*", "me"}, c.priorities, c.from, now)
			fields := map[string]any{}
			for _, e := range filter {
				fields[e.Key] = e.Value
			}
			require.Equal(t, in([]string{"a", "b"}), fields["type"])
			require.Equal(t, in([]string{"*", "me"}), fields["audience"])
			assert.Equal(t, c.priority, fields["priority"])
			assert.Equal(t, c.due, fields["due_at"])
			assert.Equal(t, c.sort, sort)
		})
	}
}
