#!/bin/sh
# A cluster of two machines on one: two network namespaces with host names of their own, and a shaped link between them. Run by hand, as root,
# from the project's root, with iproute2 and util-linux; it prints the rate of a job under allreduce, and takes everything away again.
#
#   compare/machines.sh 750mbit 6 mlp:100 [more flags of train, such as --calibrate]
set -eu
[ $# -ge 3 ] || { echo "usage: $0 RATE WORKERS MODEL [FLAGS]" >&2; exit 2; }
rate=$1 workers=$2 model=$3
shift 3
dir=$(mktemp -d)
id=$(basename "$dir" | tail -c 6)
pids=
down() {
	[ -z "$pids" ] || kill $pids 2>/dev/null || true
	wait 2>/dev/null || true
	ip netns del "a$id" 2>/dev/null || true
	ip netns del "b$id" 2>/dev/null || true
	rm -rf "$dir"
}
trap down EXIT
trap 'exit 130' INT TERM
go build -o "$dir/trivium" ./cmd/trivium
cd "$dir"
ip netns add "a$id"
ip netns add "b$id"
ip link add "v$id" netns "a$id" type veth peer name "v$id" netns "b$id"
n=1
for host in a b; do
	ip -n "$host$id" link set lo up
	ip -n "$host$id" addr add "10.99.0.$n/24" dev "v$id"
	ip -n "$host$id" link set "v$id" up
	ip netns exec "$host$id" tc qdisc add dev "v$id" root tbf rate "$rate" burst 256kb latency 50ms
	n=$((n + 1))
done
on() { # HOST COMMAND...: in its namespaces
	host=$1
	shift
	exec ip netns exec "$host$id" unshare --uts sh -c 'hostname "$0" && exec ./trivium "$@"' "host-$host" "$@"
}
(on a up --listen 10.99.0.1:7070) >up.log 2>&1 &
pids="$pids $!"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	grep -q '^token' up.log && break
	sleep 0.5
done
awk '$1 == "token" { print $2 }' up.log >token
for host in a b; do
	(on "$host" node --join 10.99.0.1:7070 --token @token --id "$host" --cores $(((workers + 1) / 2))) >"node-$host.log" 2>&1 &
	pids="$pids $!"
done
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	grep -q '^lent' node-a.log && grep -q '^lent' node-b.log && break
	sleep 0.5
done
grep -q '^lent' node-a.log && grep -q '^lent' node-b.log || { cat up.log node-*.log >&2; exit 1; }
(on a train "$model" --data digits --rows 20000 --epochs 2 --batch 100 --workers "$workers" --threads 1 --topology allreduce \
	--on 10.99.0.1:7070 --token @token "$@") | grep -E '^(finished|failed)' || { cat up.log node-*.log >&2; exit 1; }
grep -ho 'sum of .*[^"}]' runs/*/events.jsonl
