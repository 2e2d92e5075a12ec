package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

// browser is a tab of headless Chromium. A test that has one fails if a page tells an error on the console or asks for
// something that it does not get.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	troubles []string
}

// chromiums are the names of the program, the quickest first. Debian's packages are chromium-headless-shell and chromium.
var chromiums = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// places are for the browsers that are open at once.
var places = make(chan struct{}, 3)

// program is a Chromium. Tests that run at the same time share it, since its start takes longer than many a test. Each
// test has a profile of its own.
type program struct {
	mu    sync.Mutex
	users int
	ctx   context.Context
	stop  context.CancelFunc
}

var chromium program

// take starts the program for the first test. Each test leaves it at its end.
func (p *program) take(t testing.TB, path string) context.Context {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users > 0 {
		p.users++
		return p.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	var end context.CancelFunc
	p.ctx, end = chromedp.NewContext(allocator)
	p.stop = func() { end(); stop() }
	require.NoError(t, chromedp.Run(p.ctx)) // it lives as long as this context
	p.users++
	return p.ctx
}

func (p *program) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.stop()
	}
}

// tab opens one with a profile of its own. chromedp does it without a window, which Chromium refuses.
func tab(t testing.TB, shared context.Context) target.ID {
	t.Helper()
	ctx := cdp.WithExecutor(shared, chromedp.FromContext(shared).Browser)
	profile, err := target.CreateBrowserContext().Do(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.DisposeBrowserContext(profile).Do(ctx)) })
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(ctx)
	require.NoError(t, err)
	return id
}

// browse opens a browser beside those of other tests, and starts what it is to show.
func browse(t *testing.T) (*world, *browser) {
	t.Helper()
	t.Parallel()
	b := open(t)
	return newWorld(t), b
}

// open starts the browser. Without one the test is skipped; CI installs it.
func open(t testing.TB) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs in `make scenarios`")
	}
	path := ""
	for _, name := range chromiums {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("there is no Chromium: apt-get install chromium-headless-shell")
	}
	places <- struct{}{}
	t.Cleanup(func() { <-places })
	b := &browser{t: t}
	var end context.CancelFunc
	shared := chromium.take(t, path)
	t.Cleanup(chromium.leave)
	b.ctx, end = chromedp.NewContext(shared, chromedp.WithTargetID(tab(t, shared)))
	t.Cleanup(end)
	chromedp.ListenTarget(b.ctx, b.hear)
	require.NoError(t, chromedp.Run(b.ctx, network.Enable(), log.Enable(), runtime.Enable()))
	return b
}

func (b *browser) hear(event any) {
	trouble := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		trouble = "exception: " + e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			trouble = fmt.Sprintf("console %s: %s", e.Type, e.Args[0].Value)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			trouble = "log: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventLoadingFailed:
		if !e.Canceled {
			trouble = "failed request: " + e.ErrorText
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= http.StatusBadRequest {
			trouble = fmt.Sprintf("status %d of %s", e.Response.Status, e.Response.URL)
		}
	}
	if trouble != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.troubles = append(b.troubles, trouble)
	}
}

// run does something in the tab. Pages replace their parts while they are shown: what has just been found may be gone,
// and is looked for again, as a person would.
func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testdb.Patience) // such as for an element that never comes
	defer cancel()
	for _, action := range actions {
		err := chromedp.Run(ctx, action)
		for err != nil && strings.Contains(err.Error(), "Could not find node with given id") {
			err = chromedp.Run(ctx, action)
		}
		require.NoError(b.t, err)
	}
}

// visit goes to a page and waits until its script has run.
func (b *browser) visit(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url), chromedp.WaitVisible("main h1"))
}

// size is that of a screen; dark is what the system wants.
func (b *browser) size(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(emulation.SetDeviceMetricsOverride(width, height, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// quiet checks that no page has told an error so far.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.troubles)
}

// heard takes away the errors that a test has caused: their texts begin so. The browser tells of a refused request twice.
func (b *browser) heard(prefix string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(b.troubles), func(s string) bool {
		return strings.HasPrefix(s, prefix) || strings.HasPrefix(s, "log: Failed to load resource: the server responded with a "+strings.Replace(prefix, "status ", "status of ", 1))
	})
	require.Less(b.t, len(rest), len(b.troubles), "nothing was told that begins with %q", prefix)
	b.troubles = rest
}

// fill types a text into a field, in place of what is in it.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.run(chromedp.WaitVisible(selector), chromedp.Evaluate("document.querySelector("+strconv.Quote(selector)+").value = ''", nil), chromedp.SendKeys(selector, text))
}

// text is that of an element.
func (b *browser) text(selector string) (text string) {
	b.t.Helper()
	b.run(chromedp.Text(selector, &text, chromedp.NodeVisible))
	return text
}

// value is what is written in a field.
func (b *browser) value(selector string) (value string) {
	b.t.Helper()
	b.run(chromedp.Value(selector, &value))
	return value
}

// opensDialog opens a dialog by its button, without the mouse: that may meet what the page is just replacing.
func (b *browser) opensDialog(dialog string) {
	b.t.Helper()
	b.awaits(fmt.Sprintf(`document.querySelector("#%s")?.open || (document.querySelector('[data-opens="%s"]')?.click(), false)`, dialog, dialog))
}

// awaits waits until an expression of JavaScript is true. The page may be on its way to another one meanwhile.
func (b *browser) awaits(expression string) {
	b.t.Helper()
	for deadline := time.After(testdb.Patience); ; {
		var is bool
		if chromedp.Run(b.ctx, chromedp.Evaluate("!!("+expression+")", &is)) == nil && is {
			return
		}
		select {
		case <-deadline:
			require.Fail(b.t, "waited in vain", expression)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// accessible checks the page with axe-core, if MSCHEDULER_AXE names its file: it is a tool, and not part of the project.
func (b *browser) accessible() {
	b.t.Helper()
	file := os.Getenv("MSCHEDULER_AXE")
	if file == "" {
		return
	}
	script, err := os.ReadFile(file)
	require.NoError(b.t, err)
	var found string
	b.run(chromedp.Evaluate(string(script)+"; 0", nil),
		chromedp.Evaluate(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.target + " " + n.failureSummary).join("; "))))`,
			&found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var violations []string
	require.NoError(b.t, json.Unmarshal([]byte(found), &violations))
	require.Empty(b.t, violations)
}

// pictures is where the pages of the documentation have their pictures.
const pictures = "../../docs/dashboard"

// picture keeps what the tab shows for the documentation, with MSCHEDULER_UPDATE=1.
func (b *browser) picture(name string) {
	b.t.Helper()
	if os.Getenv("MSCHEDULER_UPDATE") == "" {
		return
	}
	var shot []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		shot, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	require.NoError(b.t, os.MkdirAll(pictures, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(pictures, name+".png"), shot, 0o644))
}

// looks visits a page at the sizes and in the colours that matter, and checks each.
func (b *browser) looks(name, url string) {
	b.t.Helper()
	for _, l := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"", 1440, 900, false}, {"-dark", 1440, 900, true}, {"-phone", 390, 844, false}, {"-phone-dark", 390, 844, true}} {
		b.size(l.width, l.height, l.dark)
		b.visit(url)
		b.accessible()
		var wide bool
		b.run(chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide))
		require.False(b.t, wide, "%s%s is wider than the screen", name, l.name)
		if !strings.Contains(l.name, "phone-dark") {
			b.picture(name + l.name)
		}
	}
	b.size(1440, 900, false)
	b.quiet()
}
