#!/bin/sh
# Builds the peers that are compared with into DIR: Gloo's native benchmark from Horovod's source distribution, and the program over Open
# MPI. Needs pip, cmake, a C++ compiler, and for Open MPI the packages openmpi-bin and libopenmpi-dev of Debian. PyTorch: see README.md.
set -eu
dir=${1:?usage: install.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir/gloo"
pip download --no-binary horovod --no-deps horovod==0.28.1 -d "$dir"
tar -xzf "$dir/horovod-0.28.1.tar.gz" -C "$dir"
cmake -S "$dir/horovod-0.28.1/third_party/gloo" -B "$dir/gloo" -DBUILD_BENCHMARK=ON -DUSE_REDIS=OFF -DCMAKE_BUILD_TYPE=Release \
	-DCMAKE_CXX_FLAGS="-O3 -march=native -include cstdint"
cmake --build "$dir/gloo" --parallel 2
echo "gloo: $dir/gloo/gloo/benchmark/benchmark"
if command -v mpicc >/dev/null; then
	mpicc -O3 -march=native -o "$dir/mpi_allreduce" "$here/mpi_allreduce.c"
	echo "mpi:  $dir/mpi_allreduce"
else
	echo "mpi:  not built here: no mpicc"
fi
