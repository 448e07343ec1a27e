package main

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Peers are the libraries that we compare with, loaded at run time. All run on one thread.
type peers struct {
	core   string // the kernels that OpenBLAS chose
	sgemm  uintptr
	dgemm  uintptr
	sgemv  uintptr
	dgemv  uintptr
	onednn onednn
}

// loadPeers opens the libraries after setting the variables that they read while they load.
func loadPeers(core string, avx2 bool) (*peers, error) {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	var setenv func(name, value string, overwrite int32) int32
	purego.RegisterLibFunc(&setenv, libc, "setenv")
	variables := map[string]string{
		"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
		"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
	}
	if avx2 {
		variables["ONEDNN_MAX_CPU_ISA"] = "AVX2"
	}
	for name, value := range variables {
		setenv(name, value, 1)
	}
	p := new(peers)
	blas, err := open("OpenBLAS (Debian: libopenblas0-pthread)", "libopenblas.so.0", "libopenblas.so")
	if err != nil {
		return nil, err
	}
	var threads func(int32)
	purego.RegisterLibFunc(&threads, blas, "openblas_set_num_threads")
	threads(1)
	var name func() string
	purego.RegisterLibFunc(&name, blas, "openblas_get_corename")
	p.core = name()
	for symbol, at := range map[string]*uintptr{"sgemm_": &p.sgemm, "dgemm_": &p.dgemm, "sgemv_": &p.sgemv, "dgemv_": &p.dgemv} {
		if *at, err = purego.Dlsym(blas, symbol); err != nil {
			return nil, err
		}
	}
	dnnl, err := open("oneDNN (Debian: libdnnl2 or libdnnl3)", "libdnnl.so.3", "libdnnl.so.2", "libdnnl.so")
	if err != nil {
		return nil, err
	}
	return p, p.onednn.load(dnnl)
}

// open loads the first of a library's names that is there.
func open(what string, names ...string) (uintptr, error) {
	var errs []error
	for _, n := range names {
		lib, err := purego.Dlopen(n, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return lib, nil
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("blas: %s is not installed: %w", what, errors.Join(errs...))
}

// A product holds the arguments of one call of a BLAS in Fortran's way, by address and column by column: a row-major C = A·B is a
// column-major Cᵀ = Bᵀ·Aᵀ.
type product[T float32 | float64] struct {
	opA, opB               [1]byte
	m, n, k, lda, ldb, ldc int32
	alpha, beta            T
	a, b, c                []T
	function               uintptr
}

func (p *product[T]) call() {
	purego.SyscallN(p.function, at(&p.opB), at(&p.opA), at(&p.n), at(&p.m), at(&p.k), at(&p.alpha),
		at(&p.b[0]), at(&p.ldb), at(&p.a[0]), at(&p.lda), at(&p.beta), at(&p.c[0]), at(&p.ldc))
}

func at[T any](x *T) uintptr { return uintptr(unsafe.Pointer(x)) }

func op(transposed bool) [1]byte {
	if transposed {
		return [1]byte{'T'}
	}
	return [1]byte{'N'}
}
