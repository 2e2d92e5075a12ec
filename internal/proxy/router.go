package proxy

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ofReplicaSet are the fields of an answer to hello that mongos does not give.
var ofReplicaSet = []string{"setName", "setVersion", "hosts", "primary", "me", "electionId"}

// AsRouter rewrites a server's answer to hello to that of mongos, for [Proxy.Rewrite]. It shows
// that the product works where it must take the deployment for a sharded cluster. Answers that
// only shards give it does not imitate.
func AsRouter(command string, answer bson.Raw) bson.Raw {
	var doc bson.D
	if !strings.EqualFold(command, "hello") && !strings.EqualFold(command, "isMaster") || bson.Unmarshal(answer, &doc) != nil {
		return answer
	}
	doc = slices.DeleteFunc(doc, func(e bson.E) bool { return slices.Contains(ofReplicaSet, e.Key) })
	out, err := bson.Marshal(append(doc, bson.E{Key: "msg", Value: "isdbgrid"}))
	if err != nil {
		return answer
	}
	return out
}
