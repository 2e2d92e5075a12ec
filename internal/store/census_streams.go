package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/measure"
)

// SceneCensus is what was counted of the streams of a scene.
type SceneCensus struct {
	Scene     string    `bson:"scene"`
	Open      int64     `bson:"open"`
	Suspended int64     `bson:"suspended"` // a node waits for a person
	Closed    int64     `bson:"closed"`
	Backlog   int64     `bson:"backlog"`             // nodes that were appended and have not ended; one that is being linked may count twice
	SeenAt    time.Time `bson:"seen_at"`             // when there was a stream the last time
	Round     int64     `bson:"round"`               // of the last census that had time for it
	Uncounted bool      `bson:"uncounted,omitempty"` // no census has had the time to count it
}

func (n *SceneCensus) streams() int64 { return n.Open + n.Suspended + n.Closed }

// idRange selects the streams whose ids are not less than from, and less than to; "" = no bound.
type idRange struct{ from, to string }

// of selects by the field of an id.
func (r idRange) of(field string) bson.E {
	bounds := bson.D{d("$gte", r.from)}
	if r.to != "" {
		bounds = append(bounds, d("$lt", r.to))
	}
	return d(field, bounds)
}

// sceneRange selects the streams of a scene, whose name has no slash.
func sceneRange(name string) idRange { return idRange{name + "/", name + string(rune('/'+1))} }

// ofScenes has the streams and their nodes counted when their scenes have their turns. Indexes: kind, link.
func (c *census) ofScenes(ctx context.Context) error {
	names, err := c.sceneNames(ctx)
	if err != nil {
		return err
	}
	all := len(names) < measure.Most
	if !all { // a scene of that name is counted among the others
		names = slices.DeleteFunc(names, func(name string) bool { return name == measure.Other })
	}
	c.Scenes = make([]SceneCensus, len(names), len(names)+1)
	others := []idRange{{}} // between those that are named
	for i, name := range names {
		of, last := sceneRange(name), &others[len(others)-1]
		last.to = of.from
		others = append(others, idRange{from: of.to})
		c.Scenes[i] = c.lastOfScene(name)
		c.sceneInTurn(&c.Scenes[i], of)
	}
	if !all {
		c.Scenes = append(c.Scenes, c.lastOfScene(measure.Other))
		c.sceneInTurn(&c.Scenes[len(names)], others...)
	}
	return nil
}

// lastOfScene is a scene as the last census has it.
func (c *census) lastOfScene(name string) SceneCensus {
	if i := slices.IndexFunc(c.last.Scenes, func(n SceneCensus) bool { return n.Scene == name }); i >= 0 {
		return c.last.Scenes[i]
	}
	return SceneCensus{Scene: name, SeenAt: c.At, Uncounted: true}
}

func (c *census) sceneInTurn(n *SceneCensus, ranges ...idRange) {
	c.turns = append(c.turns, turn{&n.Round, func(ctx context.Context) error { return c.scene(ctx, n, ranges) }})
}

// sceneNames are the scenes to count, sorted: those of the last census, and new ones while there is room. If there is
// no time to look at all streams, the next census goes on there. Index: kind, and no document.
func (c *census) sceneNames(ctx context.Context) (names []string, err error) {
	for _, n := range c.last.Scenes {
		if n.Scene != measure.Other && c.At.Sub(n.SeenAt) < forgetAfter {
			names = append(names, n.Scene)
		}
	}
	over := c.looking()
	for from := c.last.ScenesFrom; len(names) < measure.Most; {
		if over() {
			c.ScenesFrom = from
			break
		}
		stream, there, err := readOne[named](ctx, c.s.flows, "finding the scenes of streams",
			bson.D{d("kind", graph.KindStream), idRange{from: from}.of("_id")},
			options.FindOne().SetSort(fields("kind", "_id")).SetHint(indexKind).SetProjection(fields("_id")))
		if err != nil {
			return nil, err
		}
		if !there {
			break
		}
		name, _, _ := strings.Cut(stream.ID, "/")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		from = sceneRange(name).to
	}
	slices.Sort(names)
	return names, nil
}

// scene counts the streams of a scene, or of all others, which are in those ranges. If that takes too long, the
// scene keeps the numbers of the last census: all of them are of one time.
func (c *census) scene(ctx context.Context, n *SceneCensus, ranges []idRange) error {
	now := SceneCensus{Scene: n.Scene, SeenAt: n.SeenAt, Round: n.Round}
	for _, r := range ranges {
		if ok, err := c.streams(ctx, r, &now); err != nil || !ok {
			return err
		}
	}
	if now.streams() > 0 {
		now.SeenAt = c.At
	}
	*n = now
	return nil
}

// streams adds the streams of a range, and their nodes. ok is false if that takes too long.
// Indexes: kind, link.
func (c *census) streams(ctx context.Context, r idRange, to *SceneCensus) (ok bool, err error) {
	type status struct {
		Of struct {
			Status graph.Status
			Closed bool
		} `bson:"_id"`
		N int64
	}
	n := d("n", bson.D{d("$sum", 1)})
	those := mongo.Pipeline{{d("$match", bson.D{d("kind", graph.KindStream), r.of("_id")})}, {d("$limit", MostCounted)}}
	found, ok, err := inTime[status](ctx, c, c.s.flows, indexKind, slices.Concat(those, mongo.Pipeline{
		{d("$group", bson.D{d("_id", bson.D{d("status", "$status"), d("closed", "$closed")}), n})},
	}))
	if !ok || len(found) == 0 {
		return ok, err
	}
	for _, s := range found {
		switch {
		case s.Of.Closed:
			to.Closed += s.N
		case s.Of.Status == graph.StatusPending:
			to.Suspended += s.N
		default:
			to.Open += s.N
		}
	}
	notEnded := d("$match", bson.D{d("states.s", in([]graph.NodeStatus{graph.NodeWait, graph.NodeReady, graph.NodePending}))})
	linked, ok, err := inTime[Backlog](ctx, c, c.s.flows, indexKind, slices.Concat(those, mongo.Pipeline{
		{notEnded}, {d("$project", fields("states.s"))}, {d("$unwind", "$states")}, {notEnded},
		{d("$group", bson.D{d("_id", nil), n})},
	}))
	if !ok {
		return ok, err
	}
	waiting, ok, err := inTime[Backlog](ctx, c, c.s.flowNodes, indexLink, mongo.Pipeline{
		{d("$match", bson.D{r.of("flow_id"), d("no", bson.D{d("$gt", 0)})})}, {d("$limit", MostCounted)},
		{d("$group", bson.D{d("_id", nil), n})},
	})
	for _, b := range slices.Concat(linked, waiting) {
		to.Backlog += b.N
	}
	return ok, err
}
