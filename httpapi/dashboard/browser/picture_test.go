package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"slices"
)

// fewer makes a picture a third of its size: with 256 colours, those that it has most of, which the eye cannot tell from all of them.
func fewer(x *tab, b []byte) []byte {
	x.Helper()
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		x.Fatal(err)
	}
	type rgb [3]uint8
	at := func(c color.Color) rgb {
		r, g, b, _ := c.RGBA()
		return rgb{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}
	}
	counts := map[rgb]int{}
	box := img.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for i := box.Min.X; i < box.Max.X; i++ {
			counts[at(img.At(i, y))]++
		}
	}
	all := make([]rgb, 0, len(counts))
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b rgb) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), slices.Compare(a[:], b[:])) })
	var colours color.Palette
	for _, c := range all[:min(256, len(all))] {
		colours = append(colours, color.RGBA{c[0], c[1], c[2], 255})
	}
	place := map[rgb]uint8{}
	for _, c := range all {
		place[c] = uint8(colours.Index(color.RGBA{c[0], c[1], c[2], 255}))
	}
	out := image.NewPaletted(box, colours)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for i := box.Min.X; i < box.Max.X; i++ {
			out.SetColorIndex(i, y, place[at(img.At(i, y))])
		}
	}
	var w bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&w, out); err != nil {
		x.Fatal(err)
	}
	return w.Bytes()
}
