#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Opt-in: does a clean clone build, run and pass on a minimal Debian 12? Needs root, debootstrap and
# about 4 GB under TMPDIR. fresh.sh [run] [test] [package] does only these parts; without
# arguments all of them. Packages come from wherever this machine's own apt takes them.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
suite=bookworm
parts=" ${*:-run test package} "

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null 2>&1; then
  echo "needs root and debootstrap"
  exit 77
fi
# In a mount namespace of its own, so that no mount outlives this script however it ends.
if [ "${FRESH_NAMESPACE:-}" != 1 ]; then
  FRESH_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi

sources=$(ls /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
mirror=$(sed -n -E 's/^(URIs:|deb( \[[^]]*\])?)[[:space:]]+([^[:space:]]+).*/\3/p' "$sources" |
  head -n 1)
[ -n "$mirror" ] || { echo "no mirror in $sources"; exit 77; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/fresh.XXXXXX")
clean_up() {
  cd /
  umount "$dir/dev/shm" "$dir/sys" "$dir/proc" 2>/dev/null || true
  mountpoint -q "$dir/proc" || rm -rf --one-file-system "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# The host's way to packages: its sources, the keys they name, its proxy and transport settings.
copy_apt() {
  rm -f "$dir/etc/apt/sources.list"
  cp "$sources" "$dir/etc/apt/$([ "${sources##*.}" = sources ] && echo sources.list.d/)"
  sed -n -E 's/.*[Ss]igned-[Bb]y[:=][[:space:]]*(\/[^] ]+).*/\1/p' "$sources" | sort -u |
    while read -r key; do
      mkdir -p "$dir$(dirname "$key")"
      cp "$key" "$dir$key"
    done
  grep -lE 'Acquire::(https?|[Pp]roxy|Check)' /etc/apt/apt.conf /etc/apt/apt.conf.d/* 2>/dev/null |
    while read -r file; do cp "$file" "$dir/etc/apt/apt.conf.d/"; done
  cp /etc/resolv.conf /etc/hosts "$dir/etc/"
}

inside() {
  chroot "$dir" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LANG=C.UTF-8 sh -c "cd /shardplan && $1"
}

log=$(mktemp)
debootstrap --variant=minbase --include=ca-certificates "$suite" "$dir" "$mirror" >"$log" 2>&1 ||
  { tail -n 20 "$log"; exit 1; }
rm -f "$log"
copy_apt
mount -t proc proc "$dir/proc"
mount -t sysfs -o ro sysfs "$dir/sys"
mkdir -p "$dir/dev/shm"
mount -t tmpfs tmpfs "$dir/dev/shm"
git clone -q --no-local "$root" "$dir/shardplan"
git -C "$dir/shardplan" remote remove origin

status=0
if [[ $parts == *" run "* ]]; then
  inside "scripts/run.sh" || { echo "FAIL scripts/run.sh: $?"; status=1; }
fi
if [[ $parts == *" test "* ]]; then
  inside "scripts/test.sh" | tee "$dir/test.out" || true
  tail -n 1 "$dir/test.out" | grep -qE '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$' ||
    { echo "FAIL scripts/test.sh"; status=1; }
fi
if [[ $parts == *" package "* ]]; then
  inside 'deb=$(scripts/package.sh /tmp/package) && apt-get install -y "$deb" && cd / &&
    shardplan --version && shardplan plan llama-3-8b dgx-h100 --json /tmp/plan.json >/dev/null &&
    dpkg -r shardplan && [ ! -e /usr/bin/shardplan ] && [ ! -e /usr/share/shardplan ]' ||
    { echo "FAIL the package"; status=1; }
fi
[ "$status" = 0 ] && echo "On a minimal Debian 12 these work:$parts"
exit "$status"
