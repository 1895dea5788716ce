#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what is missing, build, run: shardplan with the arguments given, or the first question.
# Everything but the answer goes to stderr.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/packages.sh"
packages_need "$packages_build" "$packages_automatic"

build=$root/build
log=$root/build.log
if [ ! -x "$build/planner/render/shardplan" ]; then
  echo "Building: a minute or two, once; its output goes to $log" >&2
fi
if ! { [ -f "$build/build.ninja" ] ||
       meson setup "$build" "$root" --buildtype=release -Dwerror=false -Dtests=false; } \
       >"$log" 2>&1 ||
   ! ninja -C "$build" >>"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "The build failed; all of its output is in $log" >&2
  exit 4
fi
shardplan=$build/planner/render/shardplan

if [ $# -gt 0 ]; then
  exec "$shardplan" "$@"
fi

# Llama 3 70B on one DGX A100: every strategy, without and with CPU and NVMe offload.
out=$root/build/first
mkdir -p "$out"
status=0
"$shardplan" plan llama-3-70b dgx-a100 --json "$out/plan.json" --report "$out/report" || status=$?
[ "$status" -le 1 ] || exit "$status" # 1: nothing fits, which is an answer
