package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/jatah-io/jatah"
)

// one browser for all tests: it takes a second to start.
var browser = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "jatah-chromium-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(dir),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	closeBrowser = func() {
		cancel()
		stop()
		os.RemoveAll(dir)
	}
	return ctx, chromedp.Do(ctx)
})

var closeBrowser = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	closeBrowser()
	os.Exit(code)
}

// tab is one page, and what its console said.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// open opens the dashboard of a site in a tab of a given width.
func open(t *testing.T, s *site, width int64, scheme string) *tab {
	t.Helper()
	root, err := browser()
	if err != nil {
		t.Skipf("there is no chromium to look with (%v): apt-get install chromium", err)
	}
	ctx, cancel := chromedp.NewContext(root)
	ctx, end := context.WithTimeout(ctx, 90*time.Second)
	t.Cleanup(func() { end(); cancel() })
	x := &tab{T: t, ctx: ctx}
	hear(x, runtime.ExceptionThrown, func(ev runtime.EventExceptionThrown) string {
		return fmt.Sprint(ev.ExceptionDetails.Text, " ", ev.ExceptionDetails.URL)
	})
	hear(x, log.EntryAdded, func(ev log.EventEntryAdded) string {
		if ev.Entry.Level != log.EntryLevelError && ev.Entry.Level != log.EntryLevelWarning {
			return ""
		}
		return fmt.Sprint(ev.Entry.Source, ": ", ev.Entry.Text, " ", ev.Entry.URL)
	})
	hear(x, runtime.ConsoleAPICalled, func(ev runtime.EventConsoleAPICalled) string {
		if ev.Type != runtime.ConsoleAPICalledTypeError && ev.Type != runtime.ConsoleAPICalledTypeWarning {
			return ""
		}
		return fmt.Sprint("console.", ev.Type)
	})
	x.size(width, 900)
	media := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}); err != nil {
		t.Fatal(err)
	}
	x.run(chromedp.Navigate(s.url))
	return x
}

// hear notes what is wrong of one kind of event, until the tab is closed.
func hear[E any](x *tab, kind cdp.Event[E], wrong func(E) string) {
	events := chromedp.Events(x.ctx, kind)
	go func() {
		for ev, err := range events {
			if err != nil {
				return // the tab was closed
			}
			if text := wrong(ev); text != "" {
				x.mu.Lock()
				x.problems = append(x.problems, text)
				x.mu.Unlock()
			}
		}
	}()
}

func (x *tab) size(width, height int64) {
	x.Helper()
	if _, err := chromedp.Call(x.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600}); err != nil {
		x.Fatal(err)
	}
}

func (x *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	x.Helper()
	if err := chromedp.Do(x.ctx, actions...); err != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.Fatalf("%v; the console said %q", err, x.problems)
	}
}

func (x *tab) click(selector string) { x.Helper(); x.run(chromedp.Click(chromedp.CSS(selector))) }

func (x *tab) focus(selector string) { x.Helper(); x.run(chromedp.Focus(chromedp.CSS(selector))) }

// js evaluates an expression.
func js[T any](x *tab, expr string) T {
	x.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expr))
	if err != nil {
		x.Fatalf("%v: %s", err, expr)
	}
	return v
}

// until waits for an expression to be true.
func (x *tab) until(expr string) {
	x.Helper()
	for range 150 {
		if js[bool](x, "Boolean("+expr+")") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	x.Fatalf("never true: %s\nthe page says: %s", expr, js[string](x, "document.body.innerText"))
}

// quoted is a string for JavaScript.
func quoted(s string) string {
	b, _ := json.Marshal(s) // a string can be written
	return string(b)
}

// says waits until an element has a text.
func (x *tab) says(selector, text string) {
	x.Helper()
	x.until("[...document.querySelectorAll(" + quoted(selector) + ")].some(e => e.textContent.includes(" + quoted(text) + "))")
}

// fits checks that nothing is wider than the page, at the width it has and on a phone.
func (x *tab) fits() {
	x.Helper()
	const wide = `(() => { const w = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= w) return "";
		return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > w + 1).slice(0, 5).map(e => e.tagName + "." + e.className + "#" + e.id).join(", ") || "something"; })()`
	if what := js[string](x, wide); what != "" {
		x.Errorf("the page scrolls sideways at %d px: %s", js[int](x, "innerWidth"), what)
	}
}

// clean checks that the console said nothing; may are parts of what it may say.
func (x *tab) clean(may ...string) {
	x.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
next:
	for _, p := range x.problems {
		for _, m := range may {
			if strings.Contains(p, m) {
				continue next
			}
		}
		x.Errorf("the console said: %s", p)
	}
}

// pose waits until there is something to see in a picture, if they are wanted.
func pose(d time.Duration) {
	if os.Getenv("JATAH_SCREENSHOTS") != "" {
		time.Sleep(d)
	}
}

// picture writes a screenshot of the whole page, if they are wanted.
func (x *tab) picture(name string) {
	x.Helper()
	if os.Getenv("JATAH_SCREENSHOTS") == "" {
		return
	}
	height, width := js[int64](x, "Math.ceil(document.documentElement.getBoundingClientRect().height)"), js[int64](x, "innerWidth")
	js[bool](x, "(document.activeElement.blur(), true)")
	x.size(width, height)
	time.Sleep(150 * time.Millisecond) // until it is drawn
	b, err := chromedp.Run(x.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		x.Fatal(err)
	}
	x.size(width, 900)
	b = fewer(x, b)
	file := filepath.Join("..", "..", "..", "docs", "dashboard", name+".png")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		x.Fatal(err)
	}
	if len(b) > 150<<10 {
		x.Errorf("%s has %d kB", file, len(b)>>10)
	}
}

func TestEmpty(t *testing.T) {
	s := newSite(t, nil, "n1")
	x := open(t, s, 1280, "dark")
	x.says("#ready", "ready")
	x.says("#limits-empty", "No limits yet")
	x.says("#members-note", "alone")
	x.says("#events", "n1 started")
	x.says("#traffic .overlay", "No decisions")
	x.fits()
	x.picture("empty-dark")
	x.clean()
}

func TestUnderLoad(t *testing.T) {
	s := newSite(t, nil, "n1", "n2", "n3")
	s.busy()
	s.nodes[0].Note(jatah.Event{Kind: "reload", Text: "configuration reloaded: 6 limits"})
	pose(6 * time.Second)
	x := open(t, s, 1280, "dark")
	x.says("#limits-rows .who", "api")
	x.until(`document.querySelectorAll("#limits-rows tr").length === 6 && document.querySelectorAll("#members tr").length === 3`)
	x.says("#events", "configuration reloaded")
	x.says("#limits-rows .tag", "dry run")
	x.until(`parseFloat(document.querySelector("#tiles .allowed .value").textContent) > 50`)
	x.click("#limits-rows tr:first-child .pick")
	x.says("#detail-h", "api")
	x.says("#keys .name", "acme / user-48")
	x.click(`input[value="cluster"]`)
	x.says(".tile.allowed .more", "whole cluster")
	x.until(`[...document.querySelectorAll("#members td.allowed")].every(e => parseFloat(e.textContent) > 0)`)
	pose(30 * time.Second)
	x.fits()
	x.picture("load-dark")
	x.click("#theme")
	x.click("#theme")
	if got := js[string](x, "document.documentElement.dataset.theme"); got != "light" {
		t.Errorf("after two clicks the theme is %q", got)
	}
	x.picture("load-light")
	x.click("#theme") // it is remembered, and other tabs have the same storage
	x.keyboard()
	x.clean()

	phone := open(t, s, 360, "dark")
	phone.says("#limits-rows .who", "api")
	phone.says("#keys .name", "acme")
	phone.fits()
	phone.picture("phone-dark")
	phone.clean()
}

// keyboard goes through the page without a mouse.
func (x *tab) keyboard() {
	x.Helper()
	js[bool](x, "(document.activeElement.blur(), scrollTo(0, 0), true)")
	seen := map[string]bool{}
	for range 60 {
		x.run(chromedp.KeyEvent(kb.Tab))
		at := js[string](x, `(() => { const e = document.activeElement; if (e === document.body) return "body"; return (e.id || e.name || e.className) + (e.matches(":focus-visible") ? "" : " without a ring") + (e.getBoundingClientRect().width ? "" : " without size"); })()`)
		if strings.Contains(at, "without") {
			x.Errorf("the keyboard came to %s", at)
		}
		seen[at] = true
	}
	for _, want := range []string{"scope", "theme", "events", "find", "sort", "pick", "tab-used", "keys-panel"} {
		if !seen[want] {
			x.Errorf("the keyboard never came to %q, only to %v", want, seen)
		}
	}
	x.focus("#tab-used")
	x.run(chromedp.KeyEvent(kb.ArrowRight))
	x.until(`document.activeElement.id === "tab-refused" && document.activeElement.getAttribute("aria-selected") === "true"`)
	x.focus(`#limits-head button`)
	x.run(chromedp.KeyEvent(kb.Enter))
	x.until(`document.querySelector("#limits-head th").getAttribute("aria-sort") === "descending"`)
	x.focus(`#limits-rows tr:last-child button`)
	x.run(chromedp.KeyEvent(kb.Enter))
	x.until(`document.querySelector("#detail-h").textContent === document.querySelector("#limits-rows tr:last-child .name").textContent`)
	time.Sleep(1200 * time.Millisecond) // a frame
	x.until(`document.activeElement.className === "pick"`)
}

func TestOneNodeDead(t *testing.T) {
	s := newSite(t, nil, "n1", "n2", "n3")
	s.busy()
	s.net.Crash(s.addrs[2])
	x := open(t, s, 1280, "light")
	x.click(`input[value="cluster"]`)
	x.says("#notices", "n3 has failed")
	x.says("#notices", "did not answer: n3")
	x.says("#members .chip", "failed")
	x.says("#members td .sub", "share reserved")
	x.says("#events", "n3 does not answer any more")
	pose(15 * time.Second)
	x.fits()
	x.picture("dead-light")
	x.clean()
}

func TestTenNodesWithLongNamesAndMarkup(t *testing.T) {
	long := strings.Repeat("very-long-name-", 3)
	names := []string{"n1-" + long + "eu-central-1a"}
	for i := 2; i <= 10; i++ {
		names = append(names, fmt.Sprintf("n%02d-%seu-central-1%c", i, long, 'a'+i%3))
	}
	s := newSite(t, nil, names...)
	evil := `<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>` + strings.Repeat("x", 300)
	limit := "tenant/" + strings.Repeat("w", 57)
	s.define(jatah.Limit{Name: limit, Rate: jatah.PerSecond(5)}, jatah.Limit{Name: "api", Rate: jatah.PerSecond(50)})
	s.nodes[0].Note(jatah.Event{Kind: "<b>odd</b>", Text: evil, Warn: true})
	for i := range s.nodes {
		s.use(i, limit, evil, 12)
		s.use(i, "api", jatah.Key("<b>org</b>", "u"), 3)
	}
	x := open(t, s, 360, "light")
	x.until(`document.querySelectorAll("#members tr").length === 10`)
	x.says("#limits-rows .who", limit)
	x.click(`#limits-rows tr:last-child .pick`)
	x.says("#keys .name", evil)
	x.says("#events .kind", "<b>odd</b>")
	if js[bool](x, `Boolean(window.hurt) || document.querySelector("main img, main script, main b.odd") !== null`) {
		t.Error("markup in a name became a part of the page")
	}
	pose(5 * time.Second)
	x.fits()
	x.picture("phone-long-light")
	x.size(1280, 900)
	x.click(`input[value="cluster"]`)
	x.until(`[...document.querySelectorAll("#members td.allowed")].every(e => parseFloat(e.textContent) > 0)`)
	pose(15 * time.Second)
	x.fits()
	x.picture("ten-light")
	x.clean()
}

func TestToken(t *testing.T) {
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Authorization") != "Bearer open sesame" {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, `{"detail":"There is no such token."}`)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	s := newSite(t, guard, "n1")
	x := open(t, s, 360, "dark")
	x.until(`!document.querySelector("#login").hidden`)
	x.run(chromedp.SendKeys(chromedp.ID("token"), "wrong"+kb.Enter))
	x.says("#login-why", "There is no such token")
	x.fits()
	x.run(chromedp.SendKeys(chromedp.ID("token"), "open sesame"+kb.Enter))
	x.says("#ready", "ready")
	x.until(`document.querySelector("#login").hidden && !document.querySelector("#main").hidden`)
	x.run(chromedp.Reload()) // the token is still there
	x.says("#ready", "ready")
	x.clean("401")
}

// The node is started anew while the page is open: what the new process tells has the numbers of what the old one told, and is shown all the same.
func TestANodeThatIsStartedAnew(t *testing.T) {
	old := newSite(t, nil, "n1")
	old.define(jatah.Limit{Name: "api", Rate: jatah.PerSecond(50)})
	old.use(0, "api", "k", 10)
	before, err := url.Parse(old.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(before) }, FlushInterval: -1, ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}}
	running, kill := context.WithCancel(t.Context())
	defer kill()
	s := newSite(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if running.Err() == nil {
				ctx, cancel := context.WithCancel(r.Context())
				defer context.AfterFunc(running, cancel)()
				defer func() { _ = recover() }() // ReverseProxy ends what was cut off so
				proxy.ServeHTTP(w, r.WithContext(ctx))
				return
			}
			next.ServeHTTP(w, r)
		})
	}, "n1")
	s.define(jatah.Limit{Name: "api", Rate: jatah.PerSecond(50)})
	s.use(0, "api", "k", 10)
	for i := range 40 {
		old.nodes[0].Note(jatah.Event{Kind: "note", Text: fmt.Sprint("of the old process ", i)})
	}
	x := open(t, s, 1280, "light")
	x.says("#events", "of the old process 39")
	s.nodes[0].Note(jatah.Event{Kind: "note", Text: "of the new process"})
	kill()
	x.says("#events", "of the new process")
	x.until(`!document.querySelector("#events").textContent.includes("of the old process")`)
	x.says("#link", "live")
	x.clean("net::ERR", "Failed to load resource")
}

// A limit that was chosen stays chosen when there are more limits than a frame has, and others are busier.
func TestAChosenLimitStaysChosen(t *testing.T) {
	s := newSite(t, nil, "n1")
	all := []jatah.Limit{{Name: "zz-quiet", Rate: jatah.PerSecond(50)}}
	for i := range 210 {
		all = append(all, jatah.Limit{Name: fmt.Sprintf("busy-%03d", i), Rate: jatah.PerSecond(50)})
	}
	s.define(all[:2]...)
	x := open(t, s, 1280, "light")
	x.until(`document.querySelectorAll("#limits-rows tr").length === 2`)
	x.click(`#limits-rows tr:last-child .pick`)
	x.says("#detail-h", "zz-quiet")
	s.define(all...)
	for _, l := range all[1:] {
		s.use(0, l.Name, "k", 1)
	}
	x.until(`document.querySelectorAll("#limits-rows tr").length === 201`) // those that are busiest, and the chosen one
	for range 3 {
		time.Sleep(time.Second) // a frame
		if got := js[string](x, `document.querySelector("#detail-h").textContent`); got != "zz-quiet" {
			t.Fatalf("%s is shown, zz-quiet was chosen", got)
		}
	}
	x.clean()
}
