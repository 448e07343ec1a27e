package main

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// onednn is the part of oneDNN's C interface that we call: its BLAS-like product, and convolutions. Its descriptors are opaque here.
type onednn struct {
	sgemm func(ta, tb uint8, m, n, k int64, alpha float32, a unsafe.Pointer, lda int64, b unsafe.Pointer, ldb int64, beta float32, c unsafe.Pointer, ldc int64) int32

	engineCreate    func(engine *uintptr, kind int32, index uintptr) int32
	streamCreate    func(stream *uintptr, engine uintptr, flags uint32) int32
	descByTag       func(desc unsafe.Pointer, dims int32, size unsafe.Pointer, dtype, tag int32) int32
	forwardInit     func(desc unsafe.Pointer, prop, alg int32, src, weights, bias, dst, strides, dilates, padL, padR unsafe.Pointer) int32
	primitiveDesc   func(pd *uintptr, desc unsafe.Pointer, attr, engine, hint uintptr) int32
	queryMD         func(pd uintptr, what, index int32) unsafe.Pointer
	primitiveCreate func(p *uintptr, pd uintptr) int32
	memoryCreate    func(m *uintptr, md unsafe.Pointer, engine, handle uintptr) int32
	execute         uintptr

	hasConv        bool // the interface of version 2: version 3 has another
	engine, stream uintptr
}

func (d *onednn) load(lib uintptr) error {
	purego.RegisterLibFunc(&d.sgemm, lib, "dnnl_sgemm")
	if _, err := purego.Dlsym(lib, "dnnl_dilated_convolution_forward_desc_init"); err != nil {
		return nil // version 3: products only
	}
	d.hasConv = true
	for name, f := range map[string]any{
		"dnnl_engine_create": &d.engineCreate, "dnnl_stream_create": &d.streamCreate, "dnnl_memory_desc_init_by_tag": &d.descByTag,
		"dnnl_dilated_convolution_forward_desc_init": &d.forwardInit, "dnnl_primitive_desc_create": &d.primitiveDesc,
		"dnnl_primitive_desc_query_md": &d.queryMD, "dnnl_primitive_create": &d.primitiveCreate, "dnnl_memory_create": &d.memoryCreate,
	} {
		purego.RegisterLibFunc(f, lib, name)
	}
	var err error
	if d.execute, err = purego.Dlsym(lib, "dnnl_primitive_execute"); err != nil {
		return err
	}
	if s := d.engineCreate(&d.engine, 1, 0); s != 0 {
		return fmt.Errorf("blas: oneDNN made no engine: status %d", s)
	}
	if s := d.streamCreate(&d.stream, d.engine, 1); s != 0 {
		return fmt.Errorf("blas: oneDNN made no stream: status %d", s)
	}
	return nil
}

// Values of oneDNN's enumerations, version 2.
const (
	dnnlF32     = 3
	dnnlAny     = 1
	dnnlNHWC    = 20
	dnnlForward = 64
	dnnlDirect  = 1
	dnnlSrc     = 1
	dnnlDst     = 17
	dnnlWeights = 33
)

type execArg struct {
	arg    int32
	memory uintptr
}

// conv prepares a forward convolution, NHWC, with the filter in the layout that oneDNN likes best, and returns a function that runs it.
func (d *onednn) conv(n, h, w, c, kh, kw, f, pad int, x, y []float32) (func(), error) {
	const descriptor = 1024 // bytes, more than any version needs
	md := func(tag int32, dims ...int64) []byte {
		b := make([]byte, descriptor)
		var size [12]int64
		copy(size[:], dims)
		d.descByTag(unsafe.Pointer(&b[0]), int32(len(dims)), unsafe.Pointer(&size), dnnlF32, tag)
		return b
	}
	src := md(dnnlNHWC, int64(n), int64(c), int64(h), int64(w))
	dst := md(dnnlNHWC, int64(n), int64(f), int64(h), int64(w))
	weights := md(dnnlAny, int64(f), int64(c), int64(kh), int64(kw))
	strides, dilates, padding := [12]int64{1, 1}, [12]int64{}, [12]int64{int64(pad), int64(pad)}
	desc := make([]byte, 8192)
	if s := d.forwardInit(unsafe.Pointer(&desc[0]), dnnlForward, dnnlDirect, unsafe.Pointer(&src[0]), unsafe.Pointer(&weights[0]), nil,
		unsafe.Pointer(&dst[0]), unsafe.Pointer(&strides), unsafe.Pointer(&dilates), unsafe.Pointer(&padding), unsafe.Pointer(&padding)); s != 0 {
		return nil, fmt.Errorf("blas: oneDNN refused the convolution: status %d", s)
	}
	var pd, prim uintptr
	if s := d.primitiveDesc(&pd, unsafe.Pointer(&desc[0]), 0, d.engine, 0); s != 0 {
		return nil, fmt.Errorf("blas: oneDNN has no such convolution: status %d", s)
	}
	if s := d.primitiveCreate(&prim, pd); s != 0 {
		return nil, fmt.Errorf("blas: oneDNN built no convolution: status %d", s)
	}
	filter := make([]float32, 2*(kh*kw*c+64)*(f+64)) // room for its padded layouts
	for i := range filter {
		filter[i] = 0.25
	}
	args := make([]execArg, 3)
	memory := func(i int, arg int32, md unsafe.Pointer, data []float32) {
		args[i].arg = arg
		d.memoryCreate(&args[i].memory, md, d.engine, at(&data[0]))
	}
	memory(0, dnnlSrc, unsafe.Pointer(&src[0]), x)
	memory(1, dnnlWeights, d.queryMD(pd, 131, 0), filter)
	memory(2, dnnlDst, unsafe.Pointer(&dst[0]), y)
	keep := [][]float32{x, y, filter}
	return func() {
		purego.SyscallN(d.execute, prim, d.stream, uintptr(len(args)), at(&args[0]))
		_ = keep
	}, nil
}
