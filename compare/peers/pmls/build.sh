#!/bin/sh
# build.sh SOURCE ENV: builds Bösen's MLR of a source folder, as shipped and mended, into ENV. Interrupted, it goes on where it was.
# Debian: g++ make patch libzmq3-dev cppzmq-dev libgoogle-glog-dev libgflags-dev libleveldb-dev libsnappy-dev libboost-thread-dev
# libboost-system-dev libyaml-cpp-dev libeigen3-dev libconfig++-dev libgoogle-perftools-dev libcuckoo-dev
set -e
source=$1 env=$2 here=$(dirname "$0")
for f in Makefile defns.mk.template src/petuum.mk app/mlr/src/mlr_engine.cpp; do
	[ -e "$source/$f" ] || { echo "$source is not Bösen's source: it has no $f" >&2; exit 1; }
done
echo '#include <zmq.hpp>
#include <glog/logging.h>
#include <gflags/gflags.h>
#include <leveldb/db.h>
#include <snappy.h>
#include <boost/thread.hpp>
#include <yaml-cpp/yaml.h>
#include <Eigen/Dense>
#include <libconfig.h++>
#include <libcuckoo/cuckoohash_map.hh>' | g++ -std=c++14 -I/usr/include/eigen3 -fsyntax-only -x c++ - || {
	echo "a library is missing; on Debian: apt-get install" $(sed -n '3,4s/^# \(Debian: \)\?//p' "$0") >&2; exit 1; }
work=$env/bosen
if [ ! -e "$work/patched" ]; then
	rm -rf "$work"
	mkdir -p "$work/app" "$work/third_party/include/libcuckoo" "$work/lib"
	cp -r "$source/src" "$source/Makefile" "$work"
	cp -r "$source/app/mlr" "$work/app"
	find "$work" -name '*.o' -delete
	cp "$here/cuckoohash_map.hh" "$work/third_party/include/libcuckoo"
	sed -e 's/^HAS_HDFS = #.*/HAS_HDFS =/' -e 's/^ifdef HAS_HDFS/ifneq ($(strip $(HAS_HDFS)),)/' -e 's/-std=c++11/-std=c++14 -w/' \
		-e 's/-lrt -lnsl/-lrt/' -e 's|-I$(PETUUM_THIRD_PARTY_INCLUDE)|& -I/usr/include/eigen3|' "$source/defns.mk.template" > "$work/defns.mk"
	patch -d "$work" -p1 < "$here/clocks.patch"
	touch "$work/patched"
fi
cd "$work"
make -j"$(getconf _NPROCESSORS_ONLN)" path ps_lib ml_lib
mkdir -p "$env/bin"
build() { make -j"$(getconf _NPROCESSORS_ONLN)" -C app/mlr "$work/app/mlr/bin/mlr_main" MLR_BIN="$work/app/mlr/bin" && mv app/mlr/bin/mlr_main "$env/bin/$1"; }
[ -e "$env/bin/mlr_main" ] || build mlr_main
if [ ! -e "$env/bin/mlr_main_mended" ]; then
	[ -e mended ] || { patch -p1 < "$here/mended.patch" && touch mended; }
	build mlr_main_mended
fi
