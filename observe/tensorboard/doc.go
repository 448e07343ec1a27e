// Package tensorboard writes event files that TensorBoard opens: scalars, histograms, a graph, text, hyper-parameters, and a layout of
// charts.
//
// A [Writer] writes one file; it is an observe.Sink too, so that a hub can feed it. [Read] reads an event file back, for tests and for
// whoever wants to look inside without Python.
//
//	w, err := tensorboard.NewWriter(dir, host, start)
//	w.Text(time.Now(), "configuration", 0, markdown)
//	hub.Attach("event file", w)
//	...
//	err = w.Close()
//
// A record is its length (8 bytes), the masked CRC-32C of the length, an Event in the wire format of protocol buffers, and its masked
// CRC-32C. Each record is one write call, and nothing but scalars that came too fast waits in memory: of each tag at most one point a
// second is written, the newest, and a directory gets at most 200 tags, since TensorBoard lists more in minutes.
//
// Fields follow TensorBoard's event.proto, summary.proto, graph.proto, tensor.proto and the plugins' plugin_data.proto and
// layout.proto.
package tensorboard
