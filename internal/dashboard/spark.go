package dashboard

import (
	"fmt"
	"strconv"
	"strings"
)

// spark is the small picture of a type in a row: how many executions ended, and below the ground how many of
// them failed.
type spark struct {
	Path   string // of the area
	Failed string // of the ticks
	Words  string
	Fails  bool // at least half of the executions of the last slots have failed
}

// failingSlots is how many of the last slots, of a minute each, say whether a type fails.
const failingSlots = 10

const (
	sparkWidth, sparkGround, sparkHeight = 120, 18, 24
)

// sparkOf draws the numbers of a type; window says in words what time they are of.
func sparkOf(ended, failed []any, window string) *spark {
	total, bad, most, lately, badly := int64(0), int64(0), int64(1), int64(0), int64(0)
	for i := range ended {
		total, bad, most = total+integer(ended[i]), bad+integer(failed[i]), max(most, integer(ended[i]))
		if i >= len(ended)-failingSlots {
			lately, badly = lately+integer(ended[i]), badly+integer(failed[i])
		}
	}
	out := &spark{Fails: badly > 0 && 2*badly >= lately, Words: fmt.Sprintf("%s executions in the last %s, %s failed", number(total), window, number(bad))}
	step := float64(sparkWidth) / float64(max(len(ended), 1))
	var area strings.Builder
	area.WriteString("M0 " + strconv.Itoa(sparkGround))
	for i := range ended {
		x := round(float64(i) * step)
		y := float64(sparkGround)
		if n := integer(ended[i]); n > 0 {
			y = round(sparkGround - max(float64(n)/float64(most)*(sparkGround-1), 1))
		}
		area.WriteString("L" + decimal(x) + " " + decimal(y) + "H" + decimal(round(float64(i+1)*step)))
		if integer(failed[i]) > 0 {
			out.Failed += "M" + decimal(x) + " " + strconv.Itoa(sparkGround+2) + "v4h" + decimal(max(round(step), 1.5)) + "v-4z"
		}
	}
	area.WriteString("V" + strconv.Itoa(sparkGround) + "z")
	out.Path = area.String()
	return out
}

// sparksOf are the pictures of all types of an answer of the operation get-series-of-types.
func sparksOf(series document) map[string]*spark {
	out := map[string]*spark{}
	for _, t := range list(series["types"]) {
		t := object(t)
		out[text(t["type"])] = sparkOf(list(t["ended"]), list(t["failed"]), text(series["window"]))
	}
	return out
}
