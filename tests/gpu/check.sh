#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves this project on a machine with NVIDIA GPUs that may have no network, no MPI, no compiler:
# only its driver and a C library at least as new as the builder's.
#
#   check.sh pack BUILD DIR [--slim]
#                             on the machine that built: programs, their libraries and the catalog
#                             into DIR, to be copied to the GPU machine. --slim leaves NCCL and
#                             cuBLASLt out (760 MB): `run` looks for the machine's own, and does
#                             without where there is none
#   check.sh run [OUT]        there: DIR/check.sh run; results into OUT (default ./gpu-check)
#
# `run` checks correctness, measures ceilings (copies, kernels, GEMM, storage, NCCL with two GPUs or
# more), fits a cluster to them, simulates and rehearses a step with CPU and NVMe offload, and ends
# within CHECK_DEADLINE seconds (default 450) whatever hangs: every step has its own limit, and none
# stops the others. OUT/check.json, written anew after every step, holds what passed, was waived
# (and why), failed or ran out of time, and every measurement. Exit: 0, 1 (something failed), 4 (no
# usable GPU), 130 (interrupted).
#
# Settings: CHECK_BYTES (of a copy), CHECK_SMALL (where only contents count), CHECK_BUDGET (per
# point), CHECK_STORAGE (test file), CHECK_SHRINK (of rehearsals; by default so that a step takes
# 2.5 s), CHECK_MODEL, CHECK_CLUSTER (by default by the GPU's name), CHECK_GEMM (options of it),
# CHECK_LIBRARIES (folders with NCCL and cuBLASLt, separated by colons), CHECK_BENCH and CHECK_PLAN
# (programs), CHECK_FLAGS (for every measurement).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() {
    echo "check.sh: $1" >&2
    exit "${2:-2}"
}

# ---- packing -------------------------------------------------------------------------------------

# What a program would load, as the loader tells it: "NAME => PATH", or "NAME => not found".
loads() { LD_TRACE_LOADED_OBJECTS=1 "$1" 2>/dev/null; }

# Everything but the C library and the loader, which have to be the machine's own, and the driver's.
libraries_of() {
    local program
    for program in "$@"; do
        loads "$program"
    done | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
        grep -Ev '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libcuda|libnvidia-ml)\.so'
}

# A library that stands in for one left out: whatever is called fails, and says why.
stand_in() {
    local library=$1 program=$2 to=$3 prefix version map=""
    case $library in
    libnccl.*) prefix=nccl ;;
    *) prefix=cublasLt ;;
    esac
    version=$(nm -D --undefined-only "$program" | sed -n "s/.* ${prefix}[^@]*@//p" | head -1)
    if [ -n "$version" ]; then # else the loader warns
        echo "$version { *; };" >"$to/version"
        map=-Wl,--version-script=$to/version
    fi
    nm -D --undefined-only "$program" | awk -v p="$prefix" -v library="$library" '
        {sub(/@.*/, "", $2)}
        index($2, p) != 1 {next}
        $2 ~ /String$|LastError$/ {
            printf "const char *%s(void) {return \"%s is not on this machine\";}\n", $2, library
            next
        }
        {printf "int %s(void) {return 1;}\n", $2} # an error in both libraries
    ' | "${CC:-cc}" -w -x c -shared -fPIC -Wl,-soname,"$library" ${map:+"$map"} \
        -o "$to/$library" - ||
        die "cannot build a stand-in for $library" 1
    rm -f "$to/version"
}

copy_libraries() {
    local dir=$1 slim=$2 library name
    for library in $(libraries_of "$dir"/bin/*); do
        name=$(basename "$library")
        case $name in
        libnccl.so.* | libcublasLt.so.*)
            if [ "$slim" = --slim ]; then
                stand_in "$name" "$dir/bin/shardbench" "$dir/lib/absent"
                continue
            fi
            ;;
        esac
        cp -L "$library" "$dir/lib/" || die "cannot copy $library" 1
    done
}

# Nothing but glibc may come from outside DIR.
check_packed() {
    local dir=$1 program strangers path="$1/lib:$1/lib/absent"
    for program in "$dir"/bin/*; do
        strangers=$(LD_LIBRARY_PATH="$path" loads "$program" | awk -v own="$dir/" '
            $2 == "=>" && index($3, own) != 1 &&
                $1 !~ /^(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so/ {print $1}')
        [ -z "$strangers" ] || die "$program still needs $strangers" 1
    done
}

pack() {
    local build=$1 dir=$2 slim=${3-} stage
    [ -f "$build/build.ninja" ] || die "$build is no build folder"
    stage=$(mktemp -d)
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd) || die "cannot make $dir" 1
    rm -rf "${dir:?}/bin" "${dir:?}/lib" "${dir:?}/models"
    mkdir "$dir/bin" "$dir/lib" "$dir/models"
    [ "$slim" = --slim ] && mkdir "$dir/lib/absent"
    # Installing gives the programs their rpath, $ORIGIN/../lib.
    meson install -C "$build" --no-rebuild --quiet --destdir "$stage" >/dev/null ||
        die "meson install failed" 1
    find "$stage" -path '*/bin/shard*' -type f -exec cp {} "$dir/bin/" \;
    cp -r "$(find "$stage" -type d -path '*/share/shardplan/models')/." "$dir/models/"
    rm -rf "$stage"
    copy_libraries "$dir" "$slim"
    cp "${BASH_SOURCE[0]}" "$dir/check.sh"
    check_packed "$dir"
    du -sh "$dir"
}

# ---- running -------------------------------------------------------------------------------------

left() { echo $((deadline - SECONDS)); }

at_most() { [ "$(left)" -lt "$1" ] && left || echo "$1"; }

quoted() { printf '%s' "$1" | tr -d '\000-\037\177-\377' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# record NAME STATUS SECONDS REASON
record() {
    local output=""
    printf '%-22s %-8s %4ss  %s\n' "$1" "$2" "$3" "$4"
    case $2 in
    FAIL | TIMEOUT)
        failed=1
        output=$(tail -c 1500 "$out/$1.txt" 2>/dev/null | tr '\n' '|')
        output=", \"output\": \"$(quoted "$output")\""
        ;;
    esac
    steps="$steps${steps:+,}
    {\"name\": \"$1\", \"status\": \"$2\", \"seconds\": $3, \"reason\": \"$(quoted "$4")\"$output}"
    write_json
}

# What status 4 means: nothing to prove here, or a GPU that was there and failed.
missing() {
    local nothing='driver version is insufficient|no CUDA-capable device|lists none|stub library'
    if grep -aq 'is not on this machine' "$out/$1.txt"; then
        echo WAIVED
        return
    fi
    case $1 in
    nccl-shared-gpu | nvme) echo WAIVED ;;
    device) grep -aqE "$nothing" "$out/device.txt" && echo WAIVED || echo FAIL ;;
    *) echo FAIL ;;
    esac
}

# limited LIMIT FILE COMMAND...: runs it for at most LIMIT seconds. What not even SIGKILL ends,
# because a driver holds it, is left behind.
limited() {
    local limit=$1 file=$2 end status
    shift 2
    timeout -k 5 "$limit" "$@" >"$file" 2>&1 &
    running=$!
    end=$((SECONDS + limit + 8))
    while kill -0 "$running" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do
        sleep 0.1
    done
    if kill -0 "$running" 2>/dev/null; then
        disown "$running"
        status=137
    else
        wait "$running"
        status=$?
    fi
    running=""
    return $status
}

# step NAME LIMIT COMMAND...: at most LIMIT seconds and what is left. Output to OUT/NAME.txt.
step() {
    local name=$1 limit=$2 status begin=$SECONDS reason
    shift 2
    limit=$(at_most "$limit")
    if [ "$limit" -lt 2 ]; then
        record "$name" TIMEOUT 0 "no time was left"
        return 1
    fi
    limited "$limit" "$out/$name.txt" "$@"
    status=$?
    reason=$(grep -a '^shard[a-z]*:' "$out/$name.txt" | tail -1)
    [ -n "$reason" ] || reason=$(grep -av '^[[:space:]]*$' "$out/$name.txt" | tail -1)
    case $status in
    0) record "$name" PASS $((SECONDS - begin)) "" ;;
    4) record "$name" "$(missing "$name")" $((SECONDS - begin)) "$reason" ;;
    124 | 130 | 137) record "$name" TIMEOUT $((SECONDS - begin)) "not done after $limit s" ;;
    *) record "$name" FAIL $((SECONDS - begin)) "status $status: $reason" ;;
    esac
    return $status
}

# measure NAME LIMIT COMMAND OPTIONS...: a measurement, kept as OUT/NAME.jsonl.
measure() {
    local name=$1 limit=$2
    shift 2
    # shellcheck disable=SC2086
    step "$name" "$limit" "${bench[@]}" "$@" --out "$out/$name.jsonl" --budget "$budget" \
        --timeout 30s $flags
}

# ---- what the machine has ------------------------------------------------------------------------

# Folders where NCCL and cuBLASLt may lie on a machine with GPUs.
library_folders() {
    local folder
    printf '%s\n' "${CHECK_LIBRARIES:-}" | tr ':' '\n'
    for folder in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda*; do
        printf '%s\n' "$folder/lib64" "$folder/targets/x86_64-linux/lib"
    done
    for python in $(command -v python3) /opt/*/bin/python3 /opt/*/.venv/bin/python3; do
        timeout 20 "$python" -c 'import sys; print("\n".join(p for p in sys.path if p))' 2>/dev/null
    done | sort -u | while read -r folder; do
        printf '%s\n' "$folder"/nvidia/*/lib
    done
    ldconfig -p 2>/dev/null | awk '$NF ~ /lib(nccl|cublasLt)\.so/ {print $NF}' |
        xargs -r -n1 dirname
}

# Puts what a slim package lacks where the programs find it: the machine's own, else a stand-in.
find_libraries() {
    local name folder found
    [ -d "$here/lib/absent" ] || return
    library_folders >"$own/folders"
    for name in "$here"/lib/absent/*; do
        name=$(basename "$name") found=""
        while read -r folder; do
            if [ -n "$folder" ] && [ -e "$folder/$name" ]; then
                found=$folder/$name
                break
            fi
        done <"$own/folders"
        if [ -n "$found" ]; then
            ln -sf "$found" "$own/$name"
            record "$name" PASS 0 "$found"
        else
            ln -sf "$here/lib/absent/$name" "$own/$name"
            record "$name" WAIVED 0 "not on this machine, and not packed"
        fi
    done
}

# The catalog's name of this GPU: "NVIDIA H100 80GB HBM3" is tried as H100-80GB-HBM3, H100-80GB, ...
choose_cluster() {
    local name=$gpu try
    [ -n "$name" ] ||
        name=$(sed -n '1s/.*"gpu": *"\([^"]*\)".*/\1/p' "$out/device.jsonl" 2>/dev/null)
    name=$(printf '%s' "$name" | sed 's/^NVIDIA //; s/[^A-Za-z0-9]\{1,\}/-/g')
    while [ -n "$name" ]; do
        try=1x$name
        if timeout 20 "${plan[@]}" plan 1B "$try" --strategy ddp --json - \
            >/dev/null 2>&1; then
            echo "$try"
            return
        fi
        case $name in
        *-*) name=${name%-*} ;;
        *) break ;;
        esac
    done
    echo 1xH100-80GB
}

# ---- steps of several commands -------------------------------------------------------------------

# Six steps run, warm-up included: each is to take 2.5 s of predicted time.
shrink_of() {
    [ -n "${CHECK_SHRINK:-}" ] && echo "$CHECK_SHRINK" && return
    tr -d ' \n' <"$1" | grep -o '"time":{"step_s":[0-9.e+-]*' | head -1 |
        awk -F: '{s = $3} END {printf "%.4g", (s > 2.5 ? 2.5 / s : 1)}'
}

# A step of one GPU with offloads, simulated on the fitted cluster and run.
rehearse() {
    local where=$1 graph="$out/rehearse-$1.graph.json"
    step "simulate-$where" 60 "${plan[@]}" simulate "$model" "$cluster" --gpus 1 --strategy zero3 \
        --offload-optimizer "$where" --graph "$graph" --json "$out/simulate-$where.json" || return
    # shellcheck disable=SC2086
    step "rehearse-$where" 90 "${bench[@]}" rehearse "$graph" --backend gpu --devices 1 \
        --folder "$out" --shrink "$(shrink_of "$out/simulate-$where.json")" \
        --json "$out/rehearse-$where.json" --out "$out/rehearse-$where.tasks" $flags
}

# Two ranks on one GPU: correctness and bytes only, marked shared_gpu in the results.
shared_gpu() {
    if ! command -v mpirun >/dev/null; then
        record nccl-shared-gpu WAIVED 0 "no mpirun for two ranks on one GPU"
        return
    fi
    local before=${#bench[@]}
    bench=(env NCCL_MULTI_RANK_GPU_ENABLE=1 "${bench[@]}")
    measure nccl-shared-gpu 60 nccl --ranks 2 -b 1MiB -e 4MiB
    bench=("${bench[@]: -before}")
}

# CUDA's own checker over every kernel, where it is and where the machine lets it look.
sanitizer() {
    local status begin=$SECONDS text="$out/sanitizer.txt"
    if ! command -v compute-sanitizer >/dev/null; then
        record sanitizer WAIVED 0 "not on PATH"
        return
    fi
    # shellcheck disable=SC2086
    limited "$(at_most 90)" "$text" compute-sanitizer --target-processes all \
        --report-api-errors no --error-exitcode 99 "${bench[@]}" cuda --bytes 1MiB -n 1 \
        --budget 0.001s --max-iterations 1 --direction d2d ${CHECK_FLAGS:-} --quiet
    status=$?
    case $status in
    0) record sanitizer PASS $((SECONDS - begin)) "" ;;
    99) record sanitizer FAIL $((SECONDS - begin)) "$(grep -a 'ERROR SUMMARY' "$text" | tail -1)" ;;
    *) record sanitizer WAIVED $((SECONDS - begin)) "status $status: $(tail -1 "$text")" ;;
    esac
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
        step nccl-tests 60 all_reduce_perf -b "$bytes" -e "$bytes" -g "$gpus" -d bfloat16
    else
        record nccl-tests WAIVED 0 "one GPU has nobody to exchange with"
    fi
}

# Bus bandwidth of our largest all-reduce over that of nccl-tests, which prints "size count type
# redop root time algbw busbw ..."; ours is in a line of JSON.
nccl_ratio() {
    local ours
    ours=$(grep -a '"kind":"all_reduce"' "$out/nccl.jsonl" 2>/dev/null | tail -1 |
        sed -n 's/.*"busbw_bytes_per_s":\([0-9.e+]*\).*/\1/p')
    grep -av '^#' "$out/nccl-tests.txt" 2>/dev/null | awk -v ours="${ours:-0}" '
        $1 ~ /^[0-9]+$/ {theirs = $8 * 1e9}
        END {if (theirs > 0 && ours > 0) printf "%.3f", ours / theirs; else printf "null"}'
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

# Whole lines only: what was killed may leave a part of one.
measurements() {
    cat "$out"/*.jsonl 2>/dev/null | grep -a '^{.*}$' | grep -av '"schema"' | paste -sd, -
}

rehearsals() {
    local where json
    for where in cpu nvme; do
        json=$(cat "$out/rehearse-$where.json" 2>/dev/null | tr -d ' \n' |
            sed -n 's/.*"shrink":\([^,]*\),"step":{\([^}]*\)}.*/"shrink": \1, \2/p')
        [ -n "$json" ] && printf '{"optimizer": "%s", %s}\n' "$where" "$json"
    done | paste -sd, -
}

write_json() {
    cat >"$out/check.json.new" <<JSON
{
  "schema": "shardplan.gpu-check/1",
  "gpu": "$(quoted "${gpu:-unknown}")",
  "gpus": $gpus,
  "driver": "$(quoted "${driver:-unknown}")",
  "program": "$(quoted "${version:-unknown}")",
  "seconds": $SECONDS,
  "over_nvbandwidth": {
    "h2d": $(ratio host_to_device_memcpy_ce h2d),
    "d2h": $(ratio device_to_host_memcpy_ce d2h)
  },
  "over_nccl_tests": {"all_reduce": $(nccl_ratio)},
  "steps": [$steps
  ],
  "rehearsals": [$(rehearsals)],
  "measurements": [$(measurements)]
}
JSON
    mv "$out/check.json.new" "$out/check.json"
}

interrupted() {
    trap '' INT TERM
    [ -n "$running" ] && kill "$running" 2>/dev/null
    record interrupted FAIL 0 "by a signal"
    exit 130
}

prepare() {
    local name
    out=${1:-gpu-check}
    mkdir -p "$out" || die "cannot make $out"
    out=$(cd "$out" && pwd)
    for name in device correctness copies kernels gemm adam nvme nccl nccl-alone nccl-shared-gpu; do
        rm -f "$out/$name.jsonl" # of an earlier run
    done
    rm -f "$out/rehearse-cpu.json" "$out/rehearse-nvme.json"
    deadline=${CHECK_DEADLINE:-450} steps="" failed=0 gpus=0 running="" gpu="" driver="" version=""
    bytes=${CHECK_BYTES:-256MiB} budget=${CHECK_BUDGET:-0.3s} flags="--quiet ${CHECK_FLAGS:-}"
    model=${CHECK_MODEL:-1B} cluster=""
    own=$(mktemp -d)
    trap 'rm -rf "$own"' EXIT
    trap interrupted INT TERM
    # Not exported: other programs here have libraries of their own.
    local libraries="$here/lib:$own${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" folder
    for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do # where containers mount it
        [ -e "$folder/libcuda.so.1" ] && libraries=$libraries:$folder
    done
    PATH=$PATH:/usr/local/nvidia/bin
    bench=(env LD_LIBRARY_PATH="$libraries" "${CHECK_BENCH:-$here/bin/shardbench}")
    plan=(env LD_LIBRARY_PATH="$libraries" "${CHECK_PLAN:-$here/bin/shardplan}")
    [ -d "$here/models" ] && export SHARDPLAN_CATALOG="$here/models"
    find_libraries
    if command -v nvidia-smi >/dev/null; then
        limited 20 "$own/smi" nvidia-smi --query-gpu=name,driver_version --format=csv,noheader &&
            gpu=$(sed -n '1s/,.*//p' "$own/smi") driver=$(sed -n '1s/.*, *//p' "$own/smi")
    fi
}

# Everything that is to be known about the machine's ceilings.
measure_all() {
    flags=${CHECK_FLAGS:-} # tables are wanted for the comparison
    measure copies 90 cuda --bytes "$bytes" --kernel none
    flags="--quiet ${CHECK_FLAGS:-}"
    measure kernels 60 cuda --bytes "$bytes" --direction none
    # shellcheck disable=SC2086
    measure gemm 90 gemm --backend gemm ${CHECK_GEMM:-}
    measure adam 30 adam
    measure nvme 60 nvme --folder "$out" --max-bytes "${CHECK_STORAGE:-1GiB}"
    if [ "$gpus" -gt 1 ]; then
        measure nccl 90 nccl -b 64KiB -e "$bytes" -f 16 --pairs
    else
        measure nccl-alone 60 nccl -b 1MiB -e 16MiB -f 16 # one rank: its calls, no bandwidth
        shared_gpu
    fi
}

# A cluster of what was measured; what is not enough for one leaves the catalog's.
fit() {
    local files=() name
    for name in copies kernels gemm adam nvme nccl; do
        [ -s "$out/$name.jsonl" ] && files+=("$out/$name.jsonl")
    done
    cluster=${CHECK_CLUSTER:-$(choose_cluster)}
    if step fit 60 "${plan[@]}" fit "${files[@]}" --cluster "$cluster" -o "$out/fitted.json"; then
        cluster="$out/fitted.json"
    fi
}

run() {
    prepare "$@"
    if ! limited 20 "$own/version" "${bench[@]}" --version; then
        record programs FAIL 0 "$(tail -1 "$own/version")"
        return 1
    fi
    version=$(grep '^shardbench' "$own/version")
    # shellcheck disable=SC2086
    if ! step device 60 "${bench[@]}" cuda --bytes 64KiB --budget 0.01s --direction d2d \
        --kernel none ${CHECK_FLAGS:-} --timeout 20s --out "$out/device.jsonl"; then
        [ "$failed" = 1 ] && return 1
        return 4
    fi
    # shellcheck disable=SC2086
    step correctness 120 "${bench[@]}" cuda --bytes "${CHECK_SMALL:-4MiB}" -n 3 --budget 0.01s \
        ${CHECK_FLAGS:-} --out "$out/correctness.jsonl" --timeout 30s
    gpus=$(grep -c '"direction":"d2d"' "$out/device.jsonl") # one line for each
    measure_all
    fit
    rehearse cpu
    rehearse nvme
    sanitizer
    peers
    write_json
    echo "$out/check.json"
    return $failed
}

case ${1:-} in
pack)
    [ $# -eq 3 ] || [ "${4-}" = --slim ] || die "usage: check.sh pack BUILD DIR [--slim]"
    pack "$2" "$3" "${4-}"
    ;;
run)
    [ $# -le 2 ] || die "usage: check.sh run [OUT]"
    run "${2:-}"
    ;;
*)
    die "usage: check.sh pack BUILD DIR [--slim] | check.sh run [OUT]"
    ;;
esac
