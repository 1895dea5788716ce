#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the frameworks and rewrites golden/: opt-in, never part of a build or a test.
# usage: run.sh [VENV]     (default: ./.venv beside this file, made when missing; about 6 GB)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/.venv}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch==2.9.0 transformers==4.57.1 accelerate==1.15.0 numpy
  DS_BUILD_OPS=0 "$venv/bin/pip" install -q deepspeed==0.19.6
fi
python=$venv/bin/python
export OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu
cd "$here"
partial=$(mktemp -d)
trap 'rm -rf "$partial"' EXIT
"$python" torch_collectives.py > "$partial/torch_collectives.json"
"$python" fsdp2_memory.py > "$partial/fsdp2_memory.json"
"$python" torch_memory.py > "$partial/torch_memory.json"
"$python" deepspeed_calls.py "$partial/deepspeed_calls.json"
"$python" deepspeed_memory.py "$partial/deepspeed_memory.json"
"$python" deepspeed_copies.py "$partial/deepspeed_copies.json"
"$python" saved_tensors.py > "$partial/saved_tensors.json"
"$python" configs.py configs.json
mv "$partial"/*.json golden/
if [ -x "${SHARDPLAN_PROGRAM:-}" ]; then
  "$python" compare.py --table "$SHARDPLAN_PROGRAM" golden/*_calls.json golden/*_collectives.json \
    golden/torch_memory.json golden/deepspeed_memory.json golden/deepspeed_copies.json
else
  echo "golden/ rewritten; the quick suite compares, SHARDPLAN_PROGRAM=... prints the table" >&2
fi
