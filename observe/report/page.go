package report

import "github.com/trivium-ml/trivium/observe/svg"

// A Page is a document.
type Page struct {
	Title    string
	Subtitle string  // under the title: machine, date, versions
	Lead     []Block // before the first section: what the reader should know if he reads nothing else
	Sections []Section
	Footer   []Span
	Contents bool // a list of the sections, beside or above them
}

// A Section is a part of a page, numbered as it comes unless Plain.
type Section struct {
	ID     string // its anchor; empty: made from the title
	Title  string
	Plain  bool // without a number
	Blocks []Block
	Under  []Section // sub-sections; they have no number
}

// A Block is what sections are made of: Paragraph, List, Table, Figure, Figures, Facts, Tiles, Callout, Details, Code.
type Block interface{ block() }

// A Span is a stretch of text within a line. Text, Strong, Mono and Badge make one.
type Span struct {
	Text string
	Kind SpanKind
	Tone Tone // of a badge
}

// A SpanKind is how a Span is set.
type SpanKind uint8

const (
	PlainSpan SpanKind = iota
	StrongSpan
	MonoSpan
	BadgeSpan
)

// Text is a Span of plain text.
func Text(s string) Span { return Span{Text: s} }

// Strong is a Span that stands out.
func Strong(s string) Span { return Span{Text: s, Kind: StrongSpan} }

// Mono is a Span of code: a command, a name, a path.
func Mono(s string) Span { return Span{Text: s, Kind: MonoSpan} }

// A Tone is what a badge, a tile or a callout wants to say before it is read. It is never told by colour alone.
type Tone uint8

const (
	Neutral Tone = iota
	Good         // holds here, passed
	Bad          // does not hold here, failed
	Open         // undecided, not known
	Warn         // to be read with care
)

// Badge is a Span with a rim: a verdict.
func Badge(t Tone, s string) Span { return Span{Text: s, Kind: BadgeSpan, Tone: t} }

// A Paragraph is a run of text.
type Paragraph []Span

// A List is a row of points.
type List struct {
	Ordered bool
	Items   []Paragraph
}

// A Figure is a chart with its caption, numbered through the page.
type Figure struct {
	ID      string // its anchor; empty: figure-N
	Chart   svg.Chart
	Caption []Span // begins with a sentence that says what to see
	Data    *Table // what it is drawn from, folded away below it; also written to CSV and JSON
}

// Figures are small charts side by side, under one number.
type Figures struct {
	ID      string
	Caption []Span
	Items   []SmallFigure
	Columns int // on a wide page, 2 or 3; 0: 2
	Data    *Table
}

// A SmallFigure is one of several charts; its title stands above it.
type SmallFigure struct {
	Title string
	Chart svg.Chart
}

// Facts are names with what they stand for: the setup of a run.
type Facts []Fact

// A Fact is one of Facts.
type Fact struct {
	Name  string
	Value []Span
}

// Tiles are a few numbers in large print.
type Tiles []Tile

// A Tile is one of Tiles.
type Tile struct {
	Value string // formatted, with its unit
	Label string
	Note  string
	Tone  Tone
}

// A Callout is set apart from the text.
type Callout struct {
	Tone   Tone
	Title  string
	Blocks []Block
}

// Details are folded away under their summary. They are open in print.
type Details struct {
	Summary []Span
	Open    bool
	Blocks  []Block
}

// Code is text as it was printed: a command, the last lines of a program.
type Code struct {
	Caption string
	Text    string
}

func (Paragraph) block() {}
func (List) block()      {}
func (Table) block()     {}
func (Figure) block()    {}
func (Figures) block()   {}
func (Facts) block()     {}
func (Tiles) block()     {}
func (Callout) block()   {}
func (Details) block()   {}
func (Code) block()      {}
