package report

import (
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Line is a curve with its name.
type Line struct {
	Name   string
	Points []Point
}

// Span is a part of the horizontal axis that is marked, such as the time of a fault.
type Span struct{ From, To float64 }

// DrawLines draws curves over each other into an SVG file, as many as there are colors and dashes for, and marks spans in gray.
func DrawLines(file, title, x, y string, lines []Line, marked []Span) error {
	p := newPlot()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	top := 0.0
	for _, l := range lines {
		for _, at := range l.Points {
			top = max(top, at.Y)
		}
	}
	for _, s := range marked {
		box, err := plotter.NewPolygon(plotter.XYs{{X: s.From}, {X: s.From, Y: top}, {X: s.To, Y: top}, {X: s.To}})
		if err != nil {
			return err
		}
		box.Color, box.LineStyle.Width = shade(), 0
		p.Add(box)
	}
	for i, l := range lines {
		if len(l.Points) == 0 {
			continue
		}
		at := make(plotter.XYs, len(l.Points))
		for j, point := range l.Points {
			at[j] = plotter.XY(point)
		}
		line, err := plotter.NewLine(at)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = palette(i), vg.Points(1), dashes(i)
		p.Add(line)
		p.Legend.Add(l.Name, line)
	}
	fit(&p.X, false)
	fit(&p.Y, false)
	p.Y.Max *= 1.25 // the legend is above the lines
	p.Legend.Left = true
	return p.Save(24*vg.Centimeter, 9*vg.Centimeter, file)
}
