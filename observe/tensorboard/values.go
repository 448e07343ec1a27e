package tensorboard

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/internal/finite"
)

func scalarValue(tag string, v float64) []byte {
	return appendFloat(appendString(nil, valueTag, tag), valueSimple, float32(v))
}

func histogramValue(tag string, h Histogram) []byte {
	var num float64
	for _, n := range h.Counts {
		num += n
	}
	var p []byte
	for i, x := range []float64{h.Min, h.Max, num, h.Sum, h.SumSquares} {
		p = appendDouble(p, 1+i, x)
	}
	p = appendDoubles(p, 6, h.Limits)
	p = appendDoubles(p, 7, h.Counts)
	return appendMessage(appendString(nil, valueTag, tag), valueHistogram, p)
}

// metadata names the plugin that shows a value.
func metadata(plugin string, content []byte, dataClass int64) []byte {
	p := appendString(nil, pluginName, plugin)
	if content != nil {
		p = appendMessage(p, pluginContent, content)
	}
	return appendInt(appendMessage(nil, metadataPlugin, p), metadataDataClass, dataClass)
}

// stringTensor is a TensorProto of one string: shape [1] where vector, otherwise a scalar.
func stringTensor(v string, vector bool) []byte {
	p := appendInt(nil, 1, typeString)
	var shape []byte
	if vector {
		shape = appendMessage(nil, 2, appendInt(nil, 1, 1))
	}
	p = appendMessage(p, 2, shape)
	return appendMessage(p, 8, []byte(v))
}

func textValue(tag, markdown string) []byte {
	p := appendString(nil, valueTag, tag)
	p = appendMessage(p, valueTensor, stringTensor(valid(markdown), true))
	return appendMessage(p, valueMetadata, metadata("text", nil, dataClassTensor))
}

// A Node is an operation of a graph. An input that begins with ^ is a control input.
type Node struct {
	Name, Op string
	Inputs   []string
	Device   string
}

func graphDef(nodes []Node) []byte {
	var p []byte
	for _, n := range nodes {
		d := appendString(appendString(nil, 1, n.Name), 2, n.Op)
		for _, in := range n.Inputs {
			d = appendString(d, 3, in)
		}
		p = appendMessage(p, 1, appendString(d, 4, n.Device))
	}
	const producer = 22 // of the GraphDef version that TensorBoard's parser was written for
	return appendMessage(p, 4, appendInt(nil, 1, producer))
}

// hparamsValue is a value of the hparams plugin: its content is in the metadata, the tensor is empty.
func hparamsValue(tag string, field int, message []byte) []byte {
	// HParamsPluginData: version 1 (0), and one of experiment 2, session_start_info 3, session_end_info 4.
	content := appendMessage(nil, field, message)
	tensor := appendInt(nil, 1, typeFloat)
	// Shape [0]: a dimension of size 0, which proto3 writes as an empty message.
	tensor = appendMessage(tensor, 2, appendMessage(nil, 2, nil))
	p := appendString(nil, valueTag, tag)
	p = appendMessage(p, valueTensor, tensor)
	return appendMessage(p, valueMetadata, metadata("hparams", content, dataClassTensor))
}

func sessionStart(start time.Time, group string, values map[string]any) ([]byte, error) {
	// SessionStartInfo: hparams 1 (map of string to google.protobuf.Value), model_uri 2, monitor_url 3, group_name 4, start_time_secs 5.
	var p []byte
	for _, k := range slices.Sorted(maps.Keys(values)) {
		v, err := protoValue(values[k])
		if err != nil {
			return nil, fmt.Errorf("tensorboard: hyper-parameter %q: %w", k, err)
		}
		p = appendMessage(p, 1, appendMessage(appendString(nil, 1, k), 2, v))
	}
	p = appendString(p, 4, group)
	p = appendDouble(p, 5, float64(start.UnixNano())/1e9)
	return hparamsValue("_hparams_/session_start_info", 3, p), nil
}

// protoValue is a google.protobuf.Value: number_value 2, string_value 3, bool_value 4. Numbers that are not finite become strings,
// which is what its JSON form, that the page is fed, can hold.
func protoValue(v any) ([]byte, error) {
	var x float64
	switch v := v.(type) {
	case string:
		return appendMessage(nil, 3, []byte(valid(v))), nil
	case bool:
		b := uint64(0)
		if v {
			b = 1
		}
		return append(appendKey(nil, 4, wireVarint), byte(b)), nil
	case int:
		x = float64(v)
	case int64:
		x = float64(v)
	case uint64:
		x = float64(v)
	case float32:
		x = float64(v)
	case float64:
		x = v
	default:
		return nil, fmt.Errorf("want a string, a number or a truth value, found %T", v)
	}
	if !finite.Is(x) {
		return appendMessage(nil, 3, fmt.Appendf(nil, "%g", x)), nil
	}
	return appendFixed64(appendKey(nil, 2, wireFixed64), x), nil
}

func sessionEnd(end time.Time, succeeded bool) []byte {
	// SessionEndInfo: status 1 (1 success, 2 failure), end_time_secs 2.
	status := int64(2)
	if succeeded {
		status = 1
	}
	p := appendInt(nil, 1, status)
	return hparamsValue("_hparams_/session_end_info", 4, appendDouble(p, 2, float64(end.UnixNano())/1e9))
}

// A Category is a group of charts on the custom scalars page, a Chart shows all tags that match one of its patterns.
type Category struct {
	Title  string
	Charts []Chart
}

// A Chart shows all tags that match one of its regular expressions as lines.
type Chart struct {
	Title string
	Tags  []string
}

// Exactly returns the pattern that only tag matches.
func Exactly(tag string) string { return "^" + regexp.QuoteMeta(tag) + "$" }

func layoutValue(categories []Category) []byte {
	// Layout: version 1, category 2 {title 1, chart 2 {title 1, multiline 2 {tag 1}}, closed 3}.
	var layout []byte
	for _, c := range categories {
		m := appendString(nil, 1, c.Title)
		for _, chart := range c.Charts {
			var lines []byte
			for _, tag := range chart.Tags {
				lines = appendString(lines, 1, tag)
			}
			m = appendMessage(m, 2, appendMessage(appendString(nil, 1, chart.Title), 2, lines))
		}
		layout = appendMessage(layout, 2, m)
	}
	p := appendString(nil, valueTag, "custom_scalars__config__")
	p = appendMessage(p, valueTensor, stringTensor(string(layout), false))
	return appendMessage(p, valueMetadata, metadata("custom_scalars", nil, dataClassTensor))
}
