package proxy

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var (
	// ofReplicaSet are the fields of an answer to hello that mongos does not give.
	ofReplicaSet = []string{"setName", "setVersion", "hosts", "primary", "me", "electionId"}
	// ofMember are the fields that only members of a replica set give. A standalone server has sessions, too.
	ofMember = append([]string{"secondary", "lastWrite"}, ofReplicaSet...)
)

// AsRouter rewrites a server's answer to hello to that of mongos, for [Proxy.Rewrite]. It shows
// that the product works where it must take the deployment for a sharded cluster. Answers that
// only shards give it does not imitate.
func AsRouter(command string, answer bson.Raw) bson.Raw {
	return helloWithout(ofReplicaSet, command, answer, bson.E{Key: "msg", Value: "isdbgrid"})
}

// AsStandalone rewrites a server's answer to hello to that of one in no replica set, for [Proxy.Rewrite]. It does
// not imitate what such a server refuses, such as transactions.
func AsStandalone(command string, answer bson.Raw) bson.Raw {
	return helloWithout(ofMember, command, answer)
}

// AtTime rewrites a server's answer to hello to that of a server whose clock shows another time, for [Proxy.Rewrite].
func AtTime(at time.Time, command string, answer bson.Raw) bson.Raw {
	const field = "localTime"
	return helloWithout([]string{field}, command, answer, bson.E{Key: field, Value: at})
}

func helloWithout(fields []string, command string, answer bson.Raw, more ...bson.E) bson.Raw {
	var doc bson.D
	if !strings.EqualFold(command, "hello") && !strings.EqualFold(command, "isMaster") || bson.Unmarshal(answer, &doc) != nil {
		return answer
	}
	doc = slices.DeleteFunc(doc, func(e bson.E) bool { return slices.Contains(fields, e.Key) })
	out, err := bson.Marshal(append(doc, more...))
	if err != nil {
		return answer
	}
	return out
}
