#!/usr/bin/env bash
# gnu_parallel.sh SOURCE OUT TARGET PARTS [OPTION...]: converts SOURCE into OUT in PARTS parts, with
# GNU parallel, merges, and verifies OUT in as many parts. OPTIONS are those of prepack convert. To
# be run again after a failure.
#
# HOSTS  hosts to run on, by ssh, as GNU parallel wants them: 4/host1,host2 (default: this machine).
#        prepack is on the PATH of each, and SOURCE and OUT are the same files everywhere, or
#        addresses (s3://…): then prepack-remote is there, too, and OPTIONS have --scratch FOLDER
# JOBS   parts that run at once on each host (default: 1: a part uses all CPUs)
set -euo pipefail
if (($# < 4)); then
  echo "usage: gnu_parallel.sh SOURCE OUT TARGET PARTS [OPTION...]" >&2
  exit 2
fi
if [[ $2 == *://* ]]; then
  prepack=prepack-remote source=$1 out=$2 log=${2##*/}.parts.log
else
  prepack=prepack source=$(realpath "$1") out=$(realpath -m "$2") log=$(realpath -m "$2").parts.log
fi
target=$3 parts=$4
shift 4
hosts=()
[[ -z ${HOSTS:-} ]] || hosts=(--sshlogin "$HOSTS")

# A part that fails is tried twice more, on another host where there is one. When parallel is ended,
# prepack has a minute to end in good order.
for_all_parts() {
  seq "$parts" | parallel --quote "${hosts[@]}" --jobs "${JOBS:-1}" --retries 3 \
    --tagstring "part {}" --joblog "$log" --termseq TERM,60000,KILL,25 "$@"
}

for_all_parts "$prepack" convert "$source" --output "$out" --target "$target" --part "{}/$parts" \
  --resume "$@"
"$prepack" merge "$out"

if [[ $prepack == prepack ]]; then
  rm -rf "$out.verify" # reports of an earlier folder
  mkdir "$out.verify"
fi
for_all_parts "$prepack" verify "$out" --source "$source" --part "{}/$parts" \
  --report "$out.verify/{}.json"
"$prepack" verify "$out" --source "$source" --merge "$out.verify"
rm "$log"
[[ $prepack != prepack ]] || rm -r "$out.verify"
