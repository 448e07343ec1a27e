package graph

import (
	"fmt"
	"slices"
	"strings"
)

// AttrKind is the type of an attribute.
type AttrKind uint8

// The kinds of attribute.
const (
	KindInt AttrKind = iota + 1
	KindFloat
	KindBool
	KindString
	KindInts
	KindDType
	KindShape
	KindLiteral
)

var attrKindNames = [...]string{"", "int", "float", "bool", "string", "ints", "dtype", "shape", "literal"}

func (k AttrKind) String() string {
	if int(k) < len(attrKindNames) {
		return attrKindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// AttrSpec names one attribute of an operation.
type AttrSpec struct {
	Name string
	Kind AttrKind
	Doc  string
}

// Attr is the value of an attribute: the field that belongs to its Kind is set. I holds KindInt, KindBool (0, 1) and KindDType.
type Attr struct {
	Kind  AttrKind
	I     int
	F     float64
	S     string
	Ints  []int
	Shape Shape
	Lit   *Literal
}

func attrInt(i int) Attr         { return Attr{Kind: KindInt, I: i} }
func attrFloat(f float64) Attr   { return Attr{Kind: KindFloat, F: f} }
func attrString(s string) Attr   { return Attr{Kind: KindString, S: s} }
func attrInts(v []int) Attr      { return Attr{Kind: KindInts, Ints: slices.Clone(v)} }
func attrDType(d DType) Attr     { return Attr{Kind: KindDType, I: int(d)} }
func attrShape(s Shape) Attr     { return Attr{Kind: KindShape, Shape: slices.Clone(s)} }
func attrLiteral(l Literal) Attr { return Attr{Kind: KindLiteral, Lit: &l} }

func attrBool(v bool) Attr {
	if v {
		return Attr{Kind: KindBool, I: 1}
	}
	return Attr{Kind: KindBool}
}

func (a Attr) String() string {
	switch a.Kind {
	case KindInt:
		return fmt.Sprint(a.I)
	case KindFloat:
		return fmt.Sprint(a.F)
	case KindBool:
		return fmt.Sprint(a.I != 0)
	case KindString:
		return fmt.Sprintf("%q", a.S)
	case KindInts:
		return strings.ReplaceAll(fmt.Sprint(a.Ints), " ", ",")
	case KindDType:
		return DType(a.I).String()
	case KindShape:
		return a.Shape.String()
	case KindLiteral:
		return a.Lit.String()
	}
	return "?"
}
