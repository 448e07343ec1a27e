// Package svg draws charts as inline SVG: the same bytes for the same values, without a script, a font or a file beside them.
//
// A [Chart] holds what is measured and says nothing of pixels: [Lines], [Bars], [Stack], [Histogram], [Waterfall], [Scaling]. A [Frame]
// says where it stands: how wide, under which id. The same chart drawn wide and narrow is laid out twice, so that words keep their size
// on a small screen:
//
//	chart := svg.Bars{Title: "Speed", Value: svg.Axis{Unit: "samples/s"}, Groups: groups}
//	wide, err := chart.Draw(svg.Frame{ID: "speed-wide", Width: 720})
//	narrow, err := chart.Draw(svg.Frame{ID: "speed-narrow", Width: 380})
//
// Colours are CSS custom properties, which [CSS] defines for a light and a dark page; a page writes it once. A chart for a file of its
// own carries them itself: Frame.Standalone.
//
// A colour never stands alone: lines have dashes and markers, parts of a stack have hatchings, bars have labels. Text is escaped, and
// what XML cannot hold is replaced. A number that is not finite is a gap, never a coordinate. A chart with nothing to draw is an error.
package svg
