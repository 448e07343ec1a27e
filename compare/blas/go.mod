module github.com/trivium-ml/trivium/compare/blas

go 1.26.0

require (
	github.com/ebitengine/purego v0.11.3
	github.com/trivium-ml/trivium v0.0.0
)

require golang.org/x/sys v0.49.0 // indirect

replace github.com/trivium-ml/trivium => ../..
