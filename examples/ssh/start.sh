#!/bin/bash
# A training on several hosts with nothing but ssh: `start.sh HOSTS PLACES COMMAND…`.
#
# HOSTS is a file with a name or address a line. The first PLACES of them train, the others are spare
# hosts. This script runs where the head is to be, on a host that is none of them; it has the head's
# output and exit code. COMMAND gets NODE_RANK and MASTER_ADDR, for instance:
#
#   ./start.sh hosts.txt 2 sh -c 'exec torchrun --nnodes 2 --nproc-per-node 8 \
#       --node-rank $NODE_RANK --master-addr $MASTER_ADDR train.py'
#
# All hosts see this folder under the same path. docs/operate/ssh.md explains the rest.
set -eu
file=$1 places=$2
shift 2
pyft=$(command -v pyft)
PYFT_TOKEN=${PYFT_TOKEN:-$(openssl rand -hex 32)}
export PYFT_TOKEN

address_of() {
    getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }'
}

start() { # NAME HOST COMMAND…: it outlives ssh; the token goes by stdin, where no other user sees it
    local name=$1 host=$2
    shift 2
    # shellcheck disable=SC2086  # SSH may have options
    printf '%s\n' "$PYFT_TOKEN" | ${SSH:-ssh} "$host" \
        "cd $(printf %q "$PWD") && read -r PYFT_TOKEN && export PYFT_TOKEN &&
         { setsid $(printf '%q ' "$@") </dev/null >$name.out 2>&1 & }"
}

mapfile -t hosts < <(grep -v '^#' "$file")
first=$(address_of "${hosts[0]}")
own=$(ip -o route get "$first" | sed -n 's/.* src \([^ ]*\).*/\1/p')
head=$own:${HEAD_PORT:-29471}

for number in "${!hosts[@]}"; do
    host=${hosts[$number]}
    known=(--head "$head" --host "host-$number" --address "$(address_of "$host")")
    if [ "$number" -lt "$places" ]; then
        start "place-$number" "$host" env NODE_RANK="$number" MASTER_ADDR="$first" \
            "$pyft" run "${known[@]}" --place "$number" --gpus "${PYFT_GPUS:-auto}" \
            --log-dir "$PWD/place-$number.log" -- "$@"
    else
        start "spare-$number" "$host" "$pyft" host "${known[@]}" --folder "$PWD"
    fi
done &

# shellcheck disable=SC2086
exec "$pyft" head --places "$places" --listen "$head" --ledger "$PWD/job.ledger" ${HEAD_OPTIONS:-}
