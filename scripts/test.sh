#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what is missing, build with address and undefined-behaviour checks, run every test, and
# build again with gcc and every automatic feature off, and with clang.
# The last line is "N passed, N failed, N skipped"; the status is 1 when something failed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/packages.sh"
packages_need "$packages_build$packages_test" "$packages_automatic$packages_test_automatic"

passed=0 failed=0 skipped=0
finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
  exit
}

# build NAME OPTION...: into build-NAME, fresh options each time.
build() {
  name=$1
  shift
  dir=$root/build-$name
  log=$dir.log
  wipe=
  [ ! -f "$dir/build.ninja" ] || wipe=--wipe
  if meson setup $wipe "$dir" "$root" "$@" >"$log" 2>&1 && ninja -C "$dir" >>"$log" 2>&1; then
    echo "PASS  build $name"
    passed=$((passed + 1))
    return 0
  fi
  echo "FAIL  build $name"
  grep -A 8 -E 'FAILED|error|ERROR' "$log" | head -n 60
  failed=$((failed + 1))
  return 1
}

# run DIR OPTION...: adds that build's tests to the counts and names what did not pass.
run() {
  dir=$1
  shift
  meson test -C "$dir" --no-rebuild --timeout-multiplier 3 "$@" >"$dir.tests.log" 2>&1 || true
  counts=$(python3 "$root/scripts/test_counts.py" "$dir/meson-logs/testlog.json") || {
    tail -n 40 "$dir.tests.log"
    failed=$((failed + 1))
    return
  }
  printf '%s\n' "$counts" | sed '$d'
  read -r p f s <<<"$(printf '%s\n' "$counts" | tail -n 1)"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:protect_shadow_gap=0}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ ! -f "$root/tests/lsan.supp" ] ||
  export LSAN_OPTIONS="suppressions=$root/tests/lsan.supp:print_suppressions=0"

build asan -Db_sanitize=address,undefined -Db_lundef=false -Dgpu_archs=sm_80 || finish
run "$root/build-asan" --no-suite net
net=$(meson test -C "$root/build-asan" --no-rebuild --suite net --list 2>/dev/null |
  grep -c net_) || true
echo "SKIP  net ($net tests): nodes as network namespaces want a quiet machine and minutes of it;" \
  "meson test -C build-asan --suite net runs them"
skipped=$((skipped + net))

build off --buildtype=release -Dauto_features=disabled && run "$root/build-off" --suite quick

if command -v clang >/dev/null 2>&1; then
  CC=clang build clang -Dcuda=disabled -Dopenmp=disabled && run "$root/build-clang" --suite quick
else
  echo "SKIP  build clang: clang is not installed"
  skipped=$((skipped + 1))
fi
command -v nvcc >/dev/null 2>&1 ||
  echo "NOTE  CUDA kernels were not compiled: nvcc is not installed"
finish
