package rulechange_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// crossed are rules that somebody else edits after each write of the returned Periodic.
func crossed(t *testing.T) (rules *periodic.Periodic, edits func() int) {
	db := testdb.New(t)
	others, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	n := 0
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName != "update" && e.CommandName != "insert" {
				return
			}
			seen, err := others.Named(ctx, "", "nightly")
			if err != nil {
				return // it was a write of something else
			}
			spec := periodic.SpecOf(seen)
			spec.Description += "+"
			if _, err = others.Update(ctx, seen.ID, seen.Version, spec); err == nil {
				n++
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	rules, err = periodic.New(periodic.Config{Database: client.Database(db.Name())})
	require.NoError(t, err)
	return rules, func() int { return n }
}

// An edit that crosses it either comes first, and the whole is refused, or finds the whole done.
func TestARuleIsChangedAndSwitchedAsAWhole(t *testing.T) {
	rules, edits := crossed(t)
	write := func(f *form.Rule, stored *schedule.Rule) *schedule.Rule {
		t.Helper()
		before := edits()
		e, err := rulechange.Of(f, stored, nil, time.Now())
		require.NoError(t, err)
		after, err := e.Write(t.Context(), rules)
		require.NoError(t, err)
		require.Equal(t, before+1, edits(), "it is one write")
		require.Equal(t, f.Cron, after.Cron)
		require.Equal(t, *f.Enabled, after.Status == tickplan.StatusOnline)
		require.Equal(t, *f.Enabled, !after.NextFireAt.IsZero())
		return after
	}
	form := func(cron string, enabled bool) *form.Rule {
		return &form.Rule{Name: "nightly", Cron: cron, Type: "report", Enabled: &enabled}
	}
	created := write(form("0 0 1 * * *", true), nil)
	now := func() *schedule.Rule {
		r, err := rules.Get(t.Context(), created.ID)
		require.NoError(t, err)
		return r
	}
	write(form("0 0 2 * * *", false), now())
	write(form("0 0 3 * * *", true), now())

	e, err := rulechange.Of(form("0 0 4 * * *", false), created, nil, time.Now())
	require.NoError(t, err)
	before := now()
	_, err = e.Write(t.Context(), rules)
	require.ErrorIs(t, err, model.ErrChanged)
	require.Equal(t, before, now(), "nothing is done")
}

// Whoever enables or disables a rule gives it no other version.
func TestADefinitionSaysWhetherTheRuleIsEnabledThoughSomebodySwitchesIt(t *testing.T) {
	rules, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	for name, enabled := range map[string]bool{"on": true, "off": false} {
		f := &form.Rule{Name: name, Cron: "0 0 1 * * *", Type: "report", Enabled: &enabled}
		e, err := rulechange.Of(f, nil, nil, time.Now())
		require.NoError(t, err)
		stored, err := e.Write(t.Context(), rules)
		require.NoError(t, err)
		f.Cron = "0 0 2 * * *"
		e, err = rulechange.Of(f, stored, nil, time.Now())
		require.NoError(t, err)
		require.NotContains(t, strings.Join(e.Lines(), "\n"), "enabled", "it is as it is wanted")
		if enabled {
			_, err = rules.Disable(t.Context(), stored.ID, stored.Version, "not tonight")
		} else {
			_, err = rules.Enable(t.Context(), stored.ID, stored.Version)
		}
		require.NoError(t, err)
		after, err := e.Write(t.Context(), rules)
		require.NoError(t, err)
		require.Equal(t, f.Cron, after.Cron)
		require.Equal(t, enabled, after.Status == tickplan.StatusOnline, name)
	}
}

// Secrets that a file gives are compared with the stored ones, wherever a rule has them.
func TestARuleThatIsWrittenAgainWithItsSecretsIsUnchanged(t *testing.T) {
	key := strings.Repeat("0a", 32)
	box, err := secret.Parse("key", key)
	require.NoError(t, err)
	rules, err := periodic.New(periodic.Config{Database: testdb.New(t), SecretKey: key})
	require.NoError(t, err)
	written := func(word string) []*form.Rule {
		headers := map[string]string{"authorization": "Bearer " + word}
		keys := []form.CallbackKey{{AccessKey: "ak", Secret: word}}
		return []*form.Rule{
			{Name: "args", Cron: "@daily", Type: "t", Args: form.Value(`{"url": "http://h/", "headers": {"authorization": "` + word + `"}}`)},
			{Name: "headers", Cron: "@daily", HTTP: &form.HTTPTarget{URL: "http://h/", Headers: headers}},
			{Name: "keys", Cron: "@daily", HTTP: &form.HTTPTarget{URL: "http://h/", Keys: keys}},
		}
	}
	for i, f := range written("swordfish") {
		e, err := rulechange.Of(f, nil, box, time.Now())
		require.NoError(t, err)
		stored, err := e.Write(t.Context(), rules)
		require.NoError(t, err)
		e, err = rulechange.Of(f, stored, box, time.Now())
		require.NoError(t, err)
		require.Empty(t, e.Lines(), f.Name)
		e, err = rulechange.Of(written("trout")[i], stored, box, time.Now())
		require.NoError(t, err)
		require.Len(t, e.Lines(), 1, f.Name)
		require.NotContains(t, e.Lines()[0], "trout")
	}
}

// What is written is what decides, not how it looks.
func TestTextInThePlaceOfANumberIsAChange(t *testing.T) {
	rules, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	stored, err := rules.Create(t.Context(), schedule.Spec{Name: "n", Cron: "@daily", Type: "t", Args: map[string]any{"n": 5}})
	require.NoError(t, err)
	e, err := rulechange.Of(&form.Rule{Name: "n", Cron: "@daily", Type: "t", Args: form.Value(`{"n": "5"}`)}, stored, nil, time.Now())
	require.NoError(t, err)
	require.Equal(t, []string{"- args.n: 5", `+ args.n: "5"`}, e.Lines())
}
