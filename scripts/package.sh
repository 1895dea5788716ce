#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build a Debian package of this tree: scripts/package.sh [FOLDER]; prints the path of the .deb.
# The package holds what this machine's build found; libraries become its dependencies.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/packages.sh"
packages_need "$packages_build" "$packages_automatic"
command -v dpkg-deb >/dev/null 2>&1 || { echo "dpkg-deb is not installed" >&2; exit 4; }
out=${1:-$root/build-package}
mkdir -p "$out"
out=$(cd "$out" && pwd)

build=$out/build
[ -f "$build/build.ninja" ] ||
  meson setup "$build" "$root" --prefix=/usr --buildtype=release --strip -Dwerror=false \
    -Dtests=false >&2
ninja -C "$build" >&2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
DESTDIR=$stage meson install -C "$build" --no-rebuild >&2

# Packages that own the shared libraries which the programs name; CUDA's have none and stay out.
libraries() {
  find "$stage/usr/bin" "$stage/usr/libexec" -type f -perm -u+x 2>/dev/null |
    while read -r program; do
      needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
      ldd "$program" | awk '{ print $1, $3 }' | while read -r name path; do
        grep -qxF "$name" <<<"$needed" || continue
        real=$(readlink -f "$path")
        dpkg-query -S "$path" "$real" "${path#/usr}" 2>/dev/null | sed 's/:.*//' | head -n 1
      done
    done | sort -u | paste -sd, | sed 's/,/, /g'
}

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$root/meson.build")
architecture=$(dpkg --print-architecture)
mkdir -p "$stage/DEBIAN" "$stage/usr/share/doc/shardplan"
cp "$root/LICENSE" "$stage/usr/share/doc/shardplan/copyright"
cat >"$stage/DEBIAN/control" <<CONTROL
Package: shardplan
Version: $version
Architecture: $architecture
Maintainer: shardplan developers <shardplan@localhost>
Section: science
Priority: optional
Depends: $(libraries)
Recommends: gnuplot-nox, openmpi-bin
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Description: plan sharded training of large models
 Memory, bytes on each link, step time and advice for PyTorch DDP and FSDP and
 DeepSpeed ZeRO, before a GPU hour is spent, and a benchmark to prove them.
CONTROL
deb=$out/shardplan_${version}_$architecture.deb
dpkg-deb --build --root-owner-group "$stage" "$deb" >&2
echo "$deb"
