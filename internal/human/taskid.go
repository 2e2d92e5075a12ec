package human

import "strings"

// TaskID is the id of a task as people write it: http/order-17 for -/http/order-17, which has no
// tenant. A key with a slash keeps the id in full, since type/key would be taken for another.
func TaskID(id string) string {
	if short, none := strings.CutPrefix(id, "-/"); none && strings.Count(short, "/") == 1 {
		return short
	}
	return id
}

// TaskArg is the id as an argument of a command, for a shell. After -- it is no flag.
func TaskArg(id string) string {
	id = TaskID(id)
	quoted := "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
	if strings.HasPrefix(id, "-") {
		return "-- " + quoted
	}
	return quoted
}
