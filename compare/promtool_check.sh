#!/usr/bin/env bash
# Checks /metrics of a training under way with promtool (Debian's package prometheus):
#
#     compare/promtool_check.sh path/to/trivium
#
# Exits with promtool's code; 0 and no further line means that it has nothing to say.
set -uo pipefail
trivium=$(realpath "${1:?the trivium command}")
cd "$(mktemp -d)" || exit 1
"$trivium" train mlp:100 --epochs 1000 --listen 127.0.0.1:9187 --quiet &
training=$!
trap 'kill -INT $training 2>/dev/null; wait $training 2>/dev/null' EXIT
for _ in $(seq 100); do
	sleep 0.2
	curl -sf 127.0.0.1:9187/metrics >metrics && grep -q '^trivium_samples_total' metrics && break
done
grep -q '^trivium_samples_total' metrics || { echo "no metrics were served within 20 s"; exit 1; }
echo "$(grep -vc '^#' metrics) samples of $(grep -c '^# TYPE' metrics) metrics"
promtool check metrics <metrics
