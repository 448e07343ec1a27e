package svg

// helvetica are the widths of the ASCII characters from the space on, in thousandths of the font size (Adobe's metrics of Helvetica).
// A page's font is the reader's own: the widths stand for it, widened by slack.
var helvetica = [95]uint16{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, // space to /
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, // 0 to ?
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, // @ to O
	667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, // P to _
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, // ` to o
	556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, // p to ~
}

// slack makes room for system fonts, of which the widest in common use (DejaVu Sans, Verdana) run that much wider.
const slack = 1.18

// textWidth estimates the width of s at a font size.
func textWidth(s string, size float64) float64 {
	sum := 0.0
	for _, r := range s {
		switch {
		case r >= ' ' && r <= '~':
			sum += float64(helvetica[r-' '])
		case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
			r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300):
			sum += 1000 // East Asian scripts and pictures fill a square
		case r == '\u2009' || r == '\u202f':
			sum += 200 // thin spaces
		default:
			sum += 600
		}
	}
	return sum / 1000 * size * slack
}

// shorten cuts s to width, with an ellipsis.
func shorten(s string, width, size float64) string {
	if textWidth(s, size) <= width {
		return s
	}
	room := width - textWidth("…", size)
	sum := 0.0
	for i, r := range s {
		sum += textWidth(string(r), size)
		if sum > room {
			return s[:i] + "…"
		}
	}
	return s
}
