package admin

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestFindSelectsByEachFieldOfTheFilter(t *testing.T) {
	b := setup(t)
	plain := b.send(mail{}, producer.Key("plain"))
	acme := b.send(mail{}, producer.Key("acme"), producer.Tenant("acme"), producer.Creator("web"), producer.Category("bulk"))
	done := b.send(mail{}, producer.Key("done"))
	b.Claim(done.ID, "w7")
	b.End(done.ID, "w7", lifecycle.Success(bson.RawValue{}))
	sms, err := b.p.SendJSON(t.Context(), "sms", nil, producer.Key("sms"))
	require.NoError(t, err)
	_, err = b.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: sms.ID}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "created_at", Value: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}}}})
	require.NoError(t, err)
	y2021 := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)

	for name, c := range map[string]struct {
		filter Filter
		want   []producer.Sent
	}{
		"everything":     {Filter{}, []producer.Sent{plain, acme, done, sms}},
		"type":           {Filter{Type: "sms"}, []producer.Sent{sms}},
		"tenant":         {Filter{Tenant: "acme"}, []producer.Sent{acme}},
		"no tenant":      {Filter{Tenant: model.NoTenant, Type: "mail"}, []producer.Sent{plain, done}},
		"status":         {Filter{Statuses: []model.Status{model.StatusSuccess}}, []producer.Sent{done}},
		"statuses":       {Filter{Type: "mail", Statuses: []model.Status{model.StatusSuccess, model.StatusNew}}, []producer.Sent{plain, acme, done}},
		"creator":        {Filter{Creator: "web"}, []producer.Sent{acme}},
		"category":       {Filter{Category: "bulk"}, []producer.Sent{acme}},
		"worker":         {Filter{WorkerID: "w7"}, []producer.Sent{done}},
		"created before": {Filter{Before: y2021}, []producer.Sent{sms}},
		"created after":  {Filter{After: y2021}, []producer.Sent{plain, acme, done}},
		"nothing":        {Filter{Type: "fax"}, nil},
	} {
		page, err := b.a.Find(t.Context(), c.filter, 0, "")
		require.NoError(t, err, name)
		var got, want []string
		for i, task := range page.Tasks {
			got = append(got, task.ID)
			require.Equal(t, task.ID, page.Documents[i].Lookup("_id").StringValue())
		}
		for _, s := range c.want {
			want = append(want, s.ID)
		}
		slices.Sort(want)
		require.Equal(t, want, got, name)
		require.Empty(t, page.Next)
		n, err := b.a.Count(t.Context(), c.filter)
		require.NoError(t, err)
		require.EqualValues(t, len(want), n, name)
	}
	counts, err := b.a.Counts(t.Context(), Filter{})
	require.NoError(t, err)
	require.Equal(t, map[string]map[model.Status]int64{
		"mail": {model.StatusNew: 2, model.StatusSuccess: 1}, "sms": {model.StatusNew: 1},
	}, counts)
}

// What is searched for is a text, whatever it looks like, and a value at a path.
func TestFindSearchesErrorsAndArguments(t *testing.T) {
	b := setup(t)
	errorsOf := map[string]string{
		"refused": "dial tcp 10.0.0.1:25: Connection REFUSED", "dots": "want .* (a+b)? [x] {2} ^$ | \\Q\\E \\d #", "price": "costs $5, not 50%", "unicode": "Straße gesperrt: ÄÖÜ 東京 🚧",
		"lines": "first line\nsecond\tline", "none": "",
	}
	args := map[string]string{
		"refused": `{"order": {"id": 17, "name": "ann", "paid": true}, "list": [{"sku": "a"}, {"sku": "b=c"}]}`, "dots": `{"order": {"id": "17"}}`, "price": `{"order": {"id": 17.5, "name": "Ann"}}`,
		"unicode": `{"order": {"name": "東京"}}`, "lines": `"order"`, "none": `{"order": {"paid": "true", "id": -3}}`,
	}
	for key, text := range errorsOf {
		_, err := b.p.SendJSON(t.Context(), "mail", []byte(args[key]), producer.Key(key))
		require.NoError(t, err)
		if text != "" {
			_, err = b.db.Collection("tasks").UpdateByID(t.Context(), "-/mail/"+key, bson.D{{Key: "$set", Value: bson.D{{Key: "error_info", Value: text}}}})
			require.NoError(t, err)
		}
	}
	find := func(f Filter) (keys []string) {
		t.Helper()
		for token := ""; ; {
			page, err := b.a.Find(t.Context(), f, 2, token)
			require.NoError(t, err)
			for _, task := range page.Tasks {
				keys = append(keys, task.Key)
			}
			if token = page.Next; token == "" {
				break
			}
		}
		n, err := b.a.Count(t.Context(), f)
		require.NoError(t, err)
		require.EqualValues(t, len(keys), n)
		return keys
	}
	for _, text := range []string{
		"connection refused", "CONNECTION", "10.0.0.1", "10x0", ".*", ".", "$", "$5", "^", "^$", "[x]", "(a+b)?", "{2}", "\\", "\\Q", "\\E", "\\d", "|", "50%", "#", " ", "ä", "äöü", "東", "🚧", "STRASSE", "\n", "line\nsecond", "\tLINE", "e", "nothing",
	} {
		var want []string
		for key, full := range errorsOf {
			if strings.Contains(strings.ToLower(full), strings.ToLower(text)) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		require.Equal(t, want, find(Filter{Error: text}), "%q", text)
	}
	for _, c := range []struct{ arg, want string }{
		{"order.id=17", "dots refused"}, {"order.id=17.5", "price"}, {"order.id=-3", "none"}, {"order.name=ann", "refused"}, {"order.name=a.*", ""}, {"order.name=東京", "unicode"},
		{"order.paid=true", "none refused"}, {"list.sku=b=c", "refused"}, {"list.1.sku=b=c", "refused"}, {"list.sku=a", "refused"}, {"order=order", ""}, {"order.none=", ""}, {`order.name={"$gt":""}`, ""},
	} {
		require.Equal(t, c.want, strings.Join(find(Filter{Args: []string{c.arg}}), " "), c.arg)
	}
	require.Equal(t, []string{"refused"}, find(Filter{Args: []string{"order.id=17", "order.name=ann"}, Error: "refused", Type: "mail"}))
	require.Empty(t, find(Filter{Args: []string{"order.id=17", "order.id=18"}}))
	for _, arg := range []string{"", "=", "order", "=17", ".=1", "order.=1", ".id=1", "order..id=1", "$where=1", "order.$in=1", "headers.authorization=x", "headers.X-API-Key=x", "keys.sk=x", "keys.0.sk=x", "a\x00=1", "a=" + strings.Repeat("x", 400)} {
		var invalid *model.InvalidError
		_, err := b.a.Find(t.Context(), Filter{Args: []string{arg}}, 0, "")
		require.ErrorAs(t, err, &invalid, "%q", arg)
		require.Equal(t, "arg", invalid.Field)
	}
	page, err := b.a.Find(t.Context(), Filter{Error: " "}, 1, "")
	require.NoError(t, err)
	_, err = b.a.Find(t.Context(), Filter{Error: "."}, 1, page.Next)
	require.ErrorContains(t, err, "page_token", "of another search")
}

func TestPagingShowsEachTaskOnceWhateverComesAndGoes(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]Filter{
		"all": {}, "by type": {Type: "mail"}, "by tenant and type": {Tenant: model.NoTenant, Type: "mail"},
	} {
		b := setup(t)
		const n = 23
		_, err := producer.SendMany(t.Context(), b.p, mailType, items(n))
		require.NoError(t, err)
		seen := map[string]int{}
		token := ""
		for pages := 0; ; pages++ {
			page, err := b.a.Find(t.Context(), filter, 5, token)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Tasks), 5)
			for _, task := range page.Tasks {
				seen[task.ID]++
			}
			last := page.Tasks[len(page.Tasks)-1].ID
			b.send(mail{}, producer.Key(fmt.Sprintf("!new %d", pages))) // sorts before everything
			_, err = b.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: last}})
			require.NoError(t, err) // what the token names goes
			if token = page.Next; token == "" {
				break
			}
		}
		for i := range n {
			require.Equal(t, 1, seen[model.TaskID("", "mail", fmt.Sprint(i))], "%s: task %d", name, i)
		}
	}
}

func TestTheLastPageSaysSoAlsoWhenItIsFull(t *testing.T) {
	b := setup(t)
	_, err := producer.SendMany(t.Context(), b.p, mailType, items(4))
	require.NoError(t, err)
	first, err := b.a.Find(t.Context(), Filter{}, 2, "")
	require.NoError(t, err)
	require.NotEmpty(t, first.Next)
	second, err := b.a.Find(t.Context(), Filter{}, 2, first.Next)
	require.NoError(t, err)
	require.Len(t, second.Tasks, 2)
	require.Empty(t, second.Next)
}

func TestABadQueryIsRefusedByField(t *testing.T) {
	b := setup(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for field, f := range map[string]Filter{
		"tenant":    {Tenant: "a/b"},
		"type":      {Type: "a/b"},
		"status":    {Statuses: []model.Status{"Odd"}},
		"category":  {Category: "\xff"},
		"creator":   {Creator: "\x00"},
		"worker_id": {WorkerID: "*"},
		"after":     {After: now, Before: now},
		"error":     {Error: "a\x00b"},
		"arg":       {Args: []string{"order.id"}},
	} {
		var invalid *model.InvalidError
		_, err := b.a.Find(t.Context(), f, 0, "")
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
		_, err = b.a.Count(t.Context(), f)
		require.ErrorIs(t, err, model.ErrInvalid)
	}
	for _, size := range []int{-1, maxPageSize + 1} {
		_, err := b.a.Find(t.Context(), Filter{}, size, "")
		require.ErrorContains(t, err, "page_size")
	}
}

func TestATokenThatNoPageOfTheFilterHadIsRefused(t *testing.T) {
	f := Filter{Type: "mail"}
	k := store.Place{ID: "-/mail/k@7", Generation: 42}
	good := f.token(k)
	after, err := f.after(good)
	require.NoError(t, err)
	require.Equal(t, k, after)
	raw, err := base64.RawURLEncoding.DecodeString(good)
	require.NoError(t, err)
	other, past := Filter{Type: "sms"}, Filter{Type: "mail", OnlyPast: true}
	for name, bad := range map[string]string{
		"garbage":        "garbage",
		"not base64":     "!!!",
		"cut off":        good[:len(good)-2],
		"longer":         good + "AA",
		"other version":  base64.RawURLEncoding.EncodeToString(append([]byte{9}, raw[1:]...)),
		"another id":     base64.RawURLEncoding.EncodeToString(append(raw[:len(raw)-1:len(raw)-1], 'x')),
		"another filter": other.token(k),
		"other places":   past.token(k),
		"only a sum":     base64.RawURLEncoding.EncodeToString(raw[:9]),
	} {
		_, err := f.after(bad)
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, "page_token", invalid.Field)
	}
}

// FuzzPageToken: of all strings only those that token made are accepted.
func FuzzPageToken(f *testing.F) {
	filter := Filter{Type: "mail", Tenant: "acme"}
	f.Add(filter.token(store.Place{ID: "acme/mail/k", Generation: 1}))
	f.Add("")
	f.Add("AQAAAAAAAAAAeA")
	f.Fuzz(func(t *testing.T, token string) {
		id, err := filter.after(token)
		if err == nil && token != "" && filter.token(id) != token {
			t.Fatalf("%q was accepted as %v, whose token is %q", token, id, filter.token(id))
		}
	})
}
