package svg

import (
	"strconv"
	"strings"
)

// palette are the colours of hues 1 to 8, on a light and on a dark page. The first six were searched for: within the hues of Okabe and
// Ito's set, with a contrast of 3 to 1 with the page (WCAG 2.2, 1.4.11), as far apart as they can be for people who see no red or no
// green. TestPalette holds them to it.
var palette = [Hues]struct{ light, dark string }{
	{"#2f55c7", "#6a93ff"}, // blue
	{"#e65c0c", "#ff7a2e"}, // vermilion
	{"#0b9b7d", "#45e0b4"}, // bluish green
	{"#8f2a7c", "#bb86ab"}, // reddish purple
	{"#72500c", "#f5c945"}, // brown; yellow
	{"#2e9be6", "#8accf7"}, // sky blue
	{"#b0204a", "#ff8fa6"}, // crimson
	{"#5f6773", "#aab3bf"}, // slate
}

// surfaces are the colours of what is not data.
var surfaces = []struct{ name, light, dark string }{
	{"surface", "#ffffff", "#14171c"},
	{"ink", "#1b1f24", "#e8eaed"},
	{"ink-2", "#57606a", "#a3acb8"}, // labels of axes
	{"grid", "#e4e7eb", "#2b3038"},
	{"axis", "#9aa3ad", "#5c6570"},
	{"better", "#2f55c7", "#6a93ff"},
	{"worse", "#e65c0c", "#ff7a2e"},
}

// CSS returns the styles that charts need, for one style element of a page: custom properties for light and dark, by what the reader
// prefers, and the classes that use them. A page may set the properties (--tv-surface, --tv-ink, --tv-1 …) again after it.
func CSS() string {
	var b strings.Builder
	b.WriteString(":root{color-scheme:light dark;" + properties(false) + "}\n")
	b.WriteString("@media (prefers-color-scheme:dark){:root{" + properties(true) + "}}\n")
	b.WriteString("@media print{:root{color-scheme:light;" + properties(false) + "}}\n")
	b.WriteString(classes())
	return b.String()
}

func properties(dark bool) string {
	var b strings.Builder
	pick := func(name, light, bright string) {
		if dark {
			light = bright
		}
		b.WriteString("--tv-" + name + ":" + light + ";")
	}
	for _, s := range surfaces {
		pick(s.name, s.light, s.dark)
	}
	for i, p := range palette {
		pick(strconv.Itoa(i+1), p.light, p.dark)
	}
	return strings.TrimSuffix(b.String(), ";")
}

func classes() string {
	var b strings.Builder
	b.WriteString(`.tv{display:block;max-width:100%;height:auto;overflow:visible;font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
.tv text{fill:var(--tv-ink)}
.tv .l{fill:var(--tv-ink-2);font-size:11px}
.tv .h{font-weight:600;font-size:14px}
.tv .t{font-weight:600}
.tv .m{fill:var(--tv-ink-2);font-style:italic;font-size:11px}
.tv .i{fill:var(--tv-surface);font-size:11px}
.tv .bg{fill:var(--tv-surface)}
.tv .g{stroke:var(--tv-grid);stroke-width:1}
.tv .a{stroke:var(--tv-axis);stroke-width:1}
.tv .r{stroke:var(--tv-ink-2);stroke-width:1;stroke-dasharray:2 3;fill:none}
.tv .k{stroke:var(--tv-axis);stroke-width:.75;fill:none}
.tv .w{stroke:var(--tv-ink);stroke-width:1.25;fill:none}
.tv .u{stroke:var(--tv-surface);stroke-width:3;fill:none}
.tv .p{stroke:var(--tv-surface);stroke-width:1.5}
.tv .halo{paint-order:stroke;stroke:var(--tv-surface);stroke-width:3px;stroke-linejoin:round}
.tv .up{fill:var(--tv-better)}
.tv .down{fill:var(--tv-worse)}
.tv .flat{fill:var(--tv-axis)}
.tv .dot{fill:var(--tv-surface);stroke:var(--tv-ink);stroke-width:1.75}
.tv .v{fill:var(--tv-surface);font-size:11px;font-weight:600;paint-order:stroke;stroke-width:3px;stroke-linejoin:round}
.tv .n{font-weight:500}
`)
	for i := range Hues {
		n := strconv.Itoa(i + 1)
		v := "var(--tv-" + n + ")"
		b.WriteString(".tv .f" + n + "{fill:" + v + "}.tv .s" + n + "{stroke:" + v + ";fill:none;stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}" +
			".tv .e" + n + "{stroke:" + v + "}.tv .b" + n + "{fill:" + v + ";opacity:.16}.tv .o" + n + "{fill:var(--tv-surface);stroke:" + v + ";stroke-width:1.5}\n")
	}
	b.WriteString(".tv .d1{stroke-dasharray:6 3}.tv .d2{stroke-dasharray:2 3}.tv .thin{stroke-width:1;opacity:.8}\n")
	return b.String()
}

// hatches are drawn over the fill of a stack's parts, in the surface's colour, so that parts differ without colour.
var hatches = []string{
	"",
	"M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2",
	"M0,3 h6",
	"M-1,5 l2,2 M0,0 l6,6 M5,-1 l2,2",
	"M3,0 v6",
	"M1.5,1.5 h.01 M4.5,4.5 h.01",
	"M0,3 h6 M3,0 v6",
	"M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2 M-1,5 l2,2 M0,0 l6,6 M5,-1 l2,2",
	"M1.5,1 v2 M4.5,4 v2",
}

// pattern writes the paint of a part, inside defs: a hue under a hatching.
func (c *canvas) pattern(name string, h, hatch int) {
	color := "var(--tv-" + strconv.Itoa(h) + ")"
	c.b.WriteString(`<pattern id="` + c.id + "-" + name + `" width="6" height="6" patternUnits="userSpaceOnUse">` +
		`<rect width="6" height="6" fill="` + color + `"/>`)
	if d := hatches[hatch%len(hatches)]; d != "" {
		c.b.WriteString(`<path d="` + d + `" stroke="var(--tv-surface)" stroke-width="1" stroke-linecap="round" opacity=".5" fill="none"/>`)
	}
	c.b.WriteString("</pattern>\n")
}
