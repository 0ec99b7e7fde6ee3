package report

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette is that of Okabe and Ito, which most people can tell apart, without its yellow.
func palette(i int) color.Color {
	colors := []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255}, {230, 159, 0, 255}, {0, 0, 0, 255}}
	return colors[i%len(colors)]
}

// shade marks what is behind the lines.
func shade() color.Color { return color.RGBA{225, 225, 225, 255} }

func glyph(i int) draw.GlyphDrawer {
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
	return shapes[i%len(shapes)]
}

// dashes tells lines of the same color apart.
func dashes(i int) []vg.Length {
	return [][]vg.Length{nil, {vg.Points(6), vg.Points(3)}, {vg.Points(2), vg.Points(2)}}[i/7%3]
}

func newPlot() *plot.Plot {
	p := plot.New()
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant, style.Font.Size = "Sans", font.Points(9)
	}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

// wide is how many times greater than the least the greatest value must be for a logarithmic axis.
const wide = 30

// drawValues draws a row for each peer: its medians of all cases, each with a bar from the least to the greatest value.
func (t table) drawValues(file string) error {
	p := newPlot()
	p.X.Label.Text = t.unit
	least, most := t.extent()
	if least > 0 && most/least > wide {
		logarithmic(&p.X)
	} else {
		p.X.Min, p.X.Max = min(least, 0), most
	}
	// The first peer is uppermost.
	peers := slices.Clone(t.peers)
	slices.Reverse(peers)
	p.NominalY(peers...)
	for i, c := range t.cases {
		var at plotter.XYs
		var bars plotter.XErrors
		for row, peer := range peers {
			one, ok := t.cells[[2]string{c, peer}]
			if !ok {
				continue
			}
			m := Median(one.Values)
			// Cases lie a little above each other, or one would hide the next.
			at = append(at, plotter.XY{X: m, Y: float64(row) + 0.3 - 0.6*(float64(i)+0.5)/float64(len(t.cases))})
			bars = append(bars, struct{ Low, High float64 }{m - slices.Min(one.Values), slices.Max(one.Values) - m})
		}
		dots, err := plotter.NewScatter(at)
		if err != nil {
			return err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: palette(i), Radius: vg.Points(3), Shape: glyph(i)}
		spread, err := plotter.NewXErrorBars(struct {
			plotter.XYs
			plotter.XErrors
		}{at, bars})
		if err != nil {
			return err
		}
		spread.Color = palette(i)
		p.Add(spread, dots)
		p.Legend.Add(c, dots)
	}
	p.Y.Min, p.Y.Max = -0.5, float64(len(peers))+float64(len(t.cases))/2 // the legend is above the rows
	return p.Save(24*vg.Centimeter, vg.Length(3+len(peers)+len(t.cases)/2)*0.8*vg.Centimeter, file)
}

// extent is the least and the greatest value that is drawn.
func (t table) extent() (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, one := range t.cells {
		least, most = min(least, slices.Min(one.Values)), max(most, slices.Max(one.Values))
	}
	return least, most
}

// logarithmic makes the axis so. Its ends must be above 0.
func logarithmic(a *plot.Axis) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

// drawCurves draws a line for each peer.
func (t table) drawCurves(file string) error {
	p := newPlot()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = t.cases[0], t.label(), t.unit
	var logX, logY bool
	for _, one := range t.cells {
		logX, logY = logX || one.LogX, logY || one.LogY
	}
	for i, peer := range t.peers {
		one, ok := t.cells[[2]string{t.cases[0], peer}]
		var at plotter.XYs
		for _, point := range one.Points {
			if (!logX || point.X > 0) && (!logY || point.Y > 0) {
				at = append(at, plotter.XY(point))
			}
		}
		if !ok || len(at) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(at)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = palette(i), vg.Points(1.5), dashes(i)
		dots.GlyphStyle = draw.GlyphStyle{Color: palette(i), Radius: vg.Points(2), Shape: glyph(i)}
		p.Add(line, dots)
		p.Legend.Add(peer, line, dots)
	}
	fit(&p.X, logX)
	fit(&p.Y, logY)
	p.Legend.Left = true
	return p.Save(24*vg.Centimeter, 14*vg.Centimeter, file)
}

// fit gives the axis its scale, and ends that differ and that the scale can have, also where there is one point or none.
func fit(a *plot.Axis, logScale bool) {
	if math.IsInf(a.Min, 0) || math.IsInf(a.Max, 0) {
		a.Min, a.Max = 1, 10
	}
	switch {
	case logScale:
		// LogTicks marks powers of ten: there is at least one in between.
		if a.Max/a.Min < 10 {
			a.Min, a.Max = math.Pow(10, math.Floor(math.Log10(a.Min))), math.Pow(10, math.Floor(math.Log10(a.Max))+1)
		}
		logarithmic(a)
	default:
		a.Min = min(a.Min, 0)
	}
	if a.Min == a.Max {
		a.Max++
	}
}
