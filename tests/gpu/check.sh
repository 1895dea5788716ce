#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves this project on a machine with NVIDIA GPUs that may have no network, no MPI, no compiler.
#
#   check.sh pack BUILD DIR   on the machine that built: programs, their libraries and the catalog
#                             into DIR, to be copied to the GPU machine
#   check.sh run [OUT]        there: DIR/check.sh run; results into OUT (default ./gpu-check)
#
# `run` checks correctness, measures ceilings (copies, kernels, GEMM, storage, NCCL with two GPUs or
# more), fits a cluster to them, simulates and rehearses a step with CPU and NVMe offload, and ends
# within CHECK_DEADLINE seconds (default 450) whatever hangs. OUT/check.json says what passed, was
# waived (and why), failed or ran out of time. Exit: 0, 1 (something failed), 4 (no usable GPU).
#
# Settings: CHECK_BYTES (of a copy), CHECK_SMALL (where only contents count), CHECK_BUDGET (per
# point), CHECK_STORAGE (test file), CHECK_SHRINK (of rehearsals), CHECK_MODEL, CHECK_CLUSTER,
# CHECK_BENCH and CHECK_PLAN (programs), CHECK_FLAGS (for every measurement).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() {
    echo "check.sh: $1" >&2
    exit "${2:-2}"
}

# ---- packing -------------------------------------------------------------------------------------

# Everything but the C library and the loader, which have to be the machine's own, and the driver's.
libraries_of() {
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
        grep -Ev '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libcuda|libnvidia-ml)\.so'
}

pack() {
    local build=$1 dir=$2 stage
    [ -f "$build/build.ninja" ] || die "$build is no build folder"
    stage=$(mktemp -d)
    mkdir -p "$dir/bin" "$dir/lib" "$dir/models"
    # Installing gives the programs their rpath, $ORIGIN/../lib.
    meson install -C "$build" --no-rebuild --quiet --destdir "$stage" >/dev/null ||
        die "meson install failed" 1
    find "$stage" -path '*/bin/shard*' -type f -exec cp {} "$dir/bin/" \;
    cp -r "$(find "$stage" -type d -path '*/share/shardplan/models')/." "$dir/models/"
    rm -rf "$stage"
    libraries_of "$dir/bin/shardbench" "$dir/bin/shardplan" | while read -r library; do
        cp -L "$library" "$dir/lib/"
    done
    cp "${BASH_SOURCE[0]}" "$dir/check.sh"
    du -sh "$dir"
}

# ---- running -------------------------------------------------------------------------------------

left() { echo $((deadline - SECONDS)); }

quoted() { printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# record NAME STATUS SECONDS REASON
record() {
    printf '%-22s %-8s %4ss  %s\n' "$1" "$2" "$3" "$4"
    steps="$steps${steps:+,}
    {\"name\": \"$1\", \"status\": \"$2\", \"seconds\": $3, \"reason\": \"$(quoted "$4")\"}"
    case $2 in FAIL | TIMEOUT) failed=1 ;; esac
}

# What status 4 means: nothing to prove here, or a GPU that was there and failed.
missing() {
    case $1 in
    gemm | nccl-shared-gpu | nvme) echo WAIVED ;;
    device) grep -q 'no usable GPU' "$out/device.txt" && echo WAIVED || echo FAIL ;;
    *) echo FAIL ;;
    esac
}

# step NAME LIMIT COMMAND...: at most LIMIT seconds and what is left. Output to OUT/NAME.txt.
step() {
    local name=$1 limit=$2 status begin=$SECONDS reason
    shift 2
    [ "$(left)" -lt "$limit" ] && limit=$(left)
    if [ "$limit" -lt 2 ]; then
        record "$name" TIMEOUT 0 "no time was left"
        return 1
    fi
    timeout -k 5 "$limit" "$@" >"$out/$name.txt" 2>&1
    status=$?
    reason=$(grep -v '^[[:space:]]*$' "$out/$name.txt" | tail -1)
    case $status in
    0) record "$name" PASS $((SECONDS - begin)) "" ;;
    4) record "$name" "$(missing "$name")" $((SECONDS - begin)) "$reason" ;;
    124 | 137) record "$name" TIMEOUT $((SECONDS - begin)) "not done after $limit s" ;;
    *) record "$name" FAIL $((SECONDS - begin)) "status $status: $reason" ;;
    esac
    return $status
}

# measure NAME LIMIT COMMAND OPTIONS...: a measurement, kept as OUT/NAME.jsonl.
measure() {
    local name=$1 limit=$2
    shift 2
    # shellcheck disable=SC2086
    step "$name" "$limit" "$bench" "$@" --out "$out/$name.jsonl" --budget "$budget" \
        --timeout 30s $flags
}

# A step of one GPU with offloads, simulated on the fitted cluster and run.
rehearse() {
    local where=$1 graph="$out/rehearse-$1.graph.json"
    step "simulate-$where" 60 "$plan" simulate "$model" "$cluster" --gpus 1 --strategy zero3 \
        --offload-optimizer "$where" --graph "$graph" --json "$out/simulate-$where.json" || return
    # shellcheck disable=SC2086
    step "rehearse-$where" 90 "$bench" rehearse "$graph" --backend gpu --devices 1 --folder "$out" \
        --shrink "${CHECK_SHRINK:-1}" --json "$out/rehearse-$where.json" $flags
}

# Two ranks on one GPU: correctness and bytes only, marked shared_gpu in the results.
shared_gpu() {
    local old=${NCCL_MULTI_RANK_GPU_ENABLE-}
    if ! command -v mpirun >/dev/null; then
        record nccl-shared-gpu WAIVED 0 "no mpirun for two ranks on one GPU"
        return
    fi
    export NCCL_MULTI_RANK_GPU_ENABLE=1
    measure nccl-shared-gpu 60 nccl --ranks 2 -b 1MiB -e 4MiB
    export NCCL_MULTI_RANK_GPU_ENABLE=$old
}

# What others measure here, beside ours.
peers() {
    if command -v nvbandwidth >/dev/null; then
        step nvbandwidth 60 nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce -i 3
    else
        record nvbandwidth WAIVED 0 "not on PATH"
    fi
    if ! command -v all_reduce_perf >/dev/null; then
        record nccl-tests WAIVED 0 "not on PATH"
    elif [ "$gpus" -gt 1 ]; then
        step nccl-tests 60 all_reduce_perf -b 16M -e 256M -f 4 -g "$gpus" -d bfloat16
    else
        record nccl-tests WAIVED 0 "one GPU has nobody to exchange with"
    fi
}

# Rates of our own pinned copies over nvbandwidth's, from both tables.
ratio() {
    awk -v what="$1" -v ours="$2" '
        FILENAME ~ /nvbandwidth/ && $1 == "SUM" && $2 == what {theirs = $3}
        FILENAME !~ /nvbandwidth/ && $1 == "copy" && $2 == ours && /pinned/ && !/ all / && !mine {
            for (i = NF; i > 0; i--) if ($i ~ /^[0-9.]+$/ && $(i + 1) == "-") {mine = $i; break}
        }
        END {if (theirs > 0 && mine > 0) printf "%.3f", mine / theirs; else printf "null"}
    ' "$out/nvbandwidth.txt" "$out/copies.txt" 2>/dev/null || printf null
}

write_json() {
    local device driver
    device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
    cat >"$out/check.json" <<JSON
{
  "schema": "shardplan.gpu-check/1",
  "gpu": "$(quoted "${device:-unknown}")",
  "gpus": $gpus,
  "driver": "$(quoted "${driver:-unknown}")",
  "program": "$(quoted "$("$bench" --version 2>/dev/null)")",
  "seconds": $SECONDS,
  "over_nvbandwidth": {
    "h2d": $(ratio host_to_device_memcpy_ce h2d),
    "d2h": $(ratio device_to_host_memcpy_ce d2h)
  },
  "steps": [$steps
  ]
}
JSON
}

run() {
    out=${1:-gpu-check}
    mkdir -p "$out" || die "cannot make $out"
    out=$(cd "$out" && pwd)
    deadline=${CHECK_DEADLINE:-450} steps="" failed=0 gpus=0
    bytes=${CHECK_BYTES:-256MiB} budget=${CHECK_BUDGET:-0.3s} flags="--quiet ${CHECK_FLAGS:-}"
    bench=${CHECK_BENCH:-$here/bin/shardbench} plan=${CHECK_PLAN:-$here/bin/shardplan}
    model=${CHECK_MODEL:-1B} cluster=${CHECK_CLUSTER:-1xH100-80GB}
    [ -x "$bench" ] && [ -x "$plan" ] || die "no programs at $bench and $plan: pack first" 4
    export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    [ -d "$here/models" ] && export SHARDPLAN_CATALOG="$here/models"

    # shellcheck disable=SC2086
    if ! step device 60 "$bench" cuda --bytes 64KiB --budget 0.01s --direction d2d --kernel none \
        ${CHECK_FLAGS:-} --timeout 20s --out "$out/device.jsonl"; then
        write_json
        [ "$failed" = 1 ] && return 1
        return 4
    fi
    # shellcheck disable=SC2086
    step correctness 120 "$bench" cuda --bytes "${CHECK_SMALL:-4MiB}" -n 3 --budget 0.01s \
        ${CHECK_FLAGS:-} --out "$out/correctness.jsonl" --timeout 30s
    gpus=$(grep -c '"direction":"d2d"' "$out/device.jsonl") # one line for each
    flags=${CHECK_FLAGS:-} # tables are wanted for the comparison
    measure copies 90 cuda --bytes "$bytes" --kernel none
    flags="--quiet ${CHECK_FLAGS:-}"
    measure kernels 60 cuda --bytes "$bytes" --direction none
    measure gemm 60 gemm --backend gemm
    measure adam 30 adam
    measure nvme 60 nvme --folder "$out" --max-bytes "${CHECK_STORAGE:-1GiB}"
    if [ "$gpus" -gt 1 ]; then
        measure nccl 90 nccl -b 64KiB -e "$bytes" -f 16 --pairs
    else
        shared_gpu
    fi
    local files=()
    for name in copies kernels gemm adam nvme nccl; do
        [ -s "$out/$name.jsonl" ] && files+=("$out/$name.jsonl")
    done
    if step fit 60 "$plan" fit "${files[@]}" --cluster "$cluster" -o "$out/fitted.json"; then
        cluster="$out/fitted.json"
    fi
    rehearse cpu
    rehearse nvme
    peers
    write_json
    echo "$out/check.json"
    return $failed
}

case ${1:-} in
pack)
    [ $# -eq 3 ] || die "usage: check.sh pack BUILD DIR"
    pack "$2" "$3"
    ;;
run)
    [ $# -le 2 ] || die "usage: check.sh run [OUT]"
    run "${2:-}"
    ;;
*)
    die "usage: check.sh pack BUILD DIR | check.sh run [OUT]"
    ;;
esac
