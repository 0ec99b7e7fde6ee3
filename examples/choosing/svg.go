package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// style is that of all pictures. They bring their own background, so that a page's colours do not matter, and follow the
// reader's wish for dark ones where the viewer passes it on.
const style = `
text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:12px;fill:#52514e}
.head{font-size:14px;font-weight:600;fill:#0b0b0b}
.ink{fill:#0b0b0b}
.back{fill:#fcfcfb}
.grid{stroke:#e6e5e1;stroke-width:1}
.axis{stroke:#a9a8a2;stroke-width:1}
.rule{stroke:#0b0b0b;stroke-width:1.2;stroke-dasharray:4 3}
.asked{fill:#d8d7d2}
.passed{fill:#2a78d6}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.red{stroke:#d03b3b}.blue{stroke:#2a78d6}.green{stroke:#138a5a}.violet{stroke:#6a55cf}.orange{stroke:#c2570c}
@media (prefers-color-scheme:dark){
text{fill:#c3c2b7}
.head,.ink{fill:#fff}
.back{fill:#1a1a19}
.grid{stroke:#2f2f2d}
.axis{stroke:#6b6a65}
.rule{stroke:#fff}
.asked{fill:#484844}
.passed{fill:#3987e5}
.red{stroke:#f07070}.blue{stroke:#3987e5}.green{stroke:#2bb583}.violet{stroke:#9a8df0}.orange{stroke:#eb8a3c}
}
`

// drawing is an SVG being written. Lengths are in pixels, y grows downwards.
type drawing struct{ b strings.Builder }

// newDrawing begins a picture; title and description are for who cannot see it.
func newDrawing(width, height int, title, description string) *drawing {
	d := &drawing{}
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&d.b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n", escape(title), escape(description), style)
	d.rect("back", 0, 0, float64(width), float64(height))
	return d
}

func (d *drawing) bytes() []byte { return []byte(d.b.String() + "</svg>\n") }

func (d *drawing) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`+"\n", class, px(x), px(y), px(w), px(h))
}

func (d *drawing) segment(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<path class="%s" d="M%s %sL%s %s"/>`+"\n", class, px(x1), px(y1), px(x2), px(y2))
}

type point struct{ x, y float64 }

func (d *drawing) polyline(class string, points []point) {
	fmt.Fprintf(&d.b, `<polyline class="line %s" points="`, class)
	for i, p := range points {
		if i > 0 {
			d.b.WriteByte(' ')
		}
		d.b.WriteString(px(p.x) + "," + px(p.y))
	}
	d.b.WriteString("\"/>\n")
}

// text writes a line; anchor is start, middle or end.
func (d *drawing) text(class, anchor string, x, y float64, format string, args ...any) {
	fmt.Fprintf(&d.b, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`+"\n", class, anchor, px(x), px(y), escape(fmt.Sprintf(format, args...)))
}

// px writes a length to a tenth, as short as can be.
func px(x float64) string {
	s := strconv.FormatFloat(x, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}

// frame is a rectangle with a scale on both axes.
type frame struct {
	x, y, w, h float64
	x0, x1     float64 // what the edges stand for
	top        float64 // of y, which begins at 0
}

func (f frame) at(x, y float64) point {
	// The conversions keep compilers from fusing the operations, which would round differently on some machines.
	return point{f.x + float64((x-f.x0)/(f.x1-f.x0)*f.w), f.y + f.h - float64(y/f.top*f.h)}
}

// axes draws the grid and its numbers.
func (d *drawing) axes(f frame, xStep, yStep float64, xUnit string) {
	for y := 0.0; y <= f.top; y += yStep {
		class := "grid"
		if y == 0 {
			class = "axis"
		}
		left, right := f.at(f.x0, y), f.at(f.x1, y)
		d.segment(class, left.x, left.y, right.x, right.y)
		d.text("", "end", left.x-6, left.y+4, "%g", y)
	}
	for x := f.x0; x <= f.x1; x += xStep {
		p := f.at(x, 0)
		d.segment("axis", p.x, p.y, p.x, p.y+4)
		unit := ""
		if x+xStep > f.x1 {
			unit = xUnit
		}
		d.text("", "middle", p.x, p.y+17, "%g%s", x, unit)
	}
}

// bars draws what passed over what was asked: requests per second in bins of this many seconds.
func (d *drawing) bars(f frame, bin float64, asked, passed []int64) {
	for x := f.x0; x < f.x1; x += bin {
		from, to := int64(x*1e9), int64((x+bin)*1e9)
		for _, s := range []struct {
			class string
			times []int64
		}{{"asked", asked}, {"passed", passed}} {
			n := between(s.times, from, to)
			if n == 0 {
				continue
			}
			low, high := f.at(x, 0), f.at(x+bin, float64(n)/bin)
			d.rect(s.class, low.x, high.y, high.x-low.x-1, low.y-high.y)
		}
	}
}
