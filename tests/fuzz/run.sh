#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: run.sh [SECONDS [TARGET...]]: build the libFuzzer targets with clang, ASan and UBSan and
# run each for SECONDS (default 600) from its committed corpus. Findings stay in the build folder.
set -eu
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build=${FUZZ_BUILD:-${TMPDIR:-/tmp}/shardplan-fuzz}
seconds=${1:-600}
[ $# -gt 0 ] && shift
if [ ! -f "$build/build.ninja" ]; then
    CC=clang meson setup "$build" "$source_dir" -Dfuzz=true -Db_sanitize=address,undefined \
        -Db_lundef=false -Dcuda=disabled -Dc_args=-fsanitize=fuzzer-no-link
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for folder in "$source_dir"/tests/fuzz/corpus/*/; do
        targets+=("$(basename "$folder")")
    done
fi
status=0
for target in "${targets[@]}"; do
    ninja -C "$build" "tests/fuzz/$target" > "$build/$target.build.log"
    mkdir -p "$build/new/$target" "$build/findings"
    "$build/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -max_len=4096 -artifact_prefix="$build/findings/$target-" "$build/new/$target" \
        "$source_dir/tests/fuzz/corpus/$target" 2> "$build/$target.log" || status=1
    echo "$target: $(grep -E '^#[0-9]+.*(DONE|cov)' "$build/$target.log" | tail -1)"
done
exit $status
