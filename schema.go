package trivium

// A Schema says what the batches of a data set hold, before any is read: what a model is built for.
type Schema struct {
	Inputs []InputSpec `json:"inputs"`
	Labels LabelSpec   `json:"labels"`
}

// An InputSpec describes one Input: Name, Form and Shape mean what they mean there.
type InputSpec struct {
	Name  string `json:"name"`
	Form  Form   `json:"form"`
	Shape []int  `json:"shape,omitempty"`
}

// A LabelSpec describes the Labels.
type LabelSpec struct {
	Kind  LabelKind `json:"kind"`
	Width int       `json:"width"`           // classes, or real numbers a row
	Names []string  `json:"names,omitempty"` // of the classes, as the source writes them
}

// Input returns the input of that name, or nil.
func (s *Schema) Input(name string) *InputSpec {
	for i := range s.Inputs {
		if s.Inputs[i].Name == name {
			return &s.Inputs[i]
		}
	}
	return nil
}

// Columns returns the number of float32 values of one row of a Dense input, and the number of columns of a CSR one.
func (s *InputSpec) Columns() int { return product(s.Shape) }
