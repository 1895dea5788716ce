#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build a Debian package of this tree: scripts/package.sh [--minimal] [FOLDER]; prints the path of
# the .deb. The package holds what this machine's build found, and depends on the versions of the
# libraries that its programs were linked with. --minimal leaves out everything optional (MPI, CUDA,
# NCCL, io_uring, hwloc, libnuma): it installs on a bare Debian of the same release.
set -eu
minimal=
[ "${1:-}" = --minimal ] && { minimal=1; shift; }
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/packages.sh"
packages_need "$packages_build" "$([ -n "$minimal" ] || printf '%s' "$packages_automatic")"
command -v dpkg-deb >/dev/null 2>&1 || { echo "dpkg-deb is not installed" >&2; exit 4; }
out=${1:-$root/build-package}
mkdir -p "$out"
out=$(cd "$out" && pwd)

build=$out/build$minimal
features=()
if [ -n "$minimal" ]; then
  for feature in cuda nccl mpi liburing hwloc libnuma; do features+=("-D$feature=disabled"); done
fi
[ -f "$build/build.ninja" ] ||
  meson setup "$build" "$root" --prefix=/usr --buildtype=release --strip -Dwerror=false \
    -Dtests=false "${features[@]}" >&2
ninja -C "$build" >&2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
DESTDIR=$stage meson install -C "$build" --no-rebuild >&2

programs() {
  find "$stage/usr/bin" "$stage/usr/libexec" -type f -perm -u+x 2>/dev/null
}

# With versions, from the symbols that the programs use. CUDA's libraries belong to no package.
versioned() {
  local work
  work=$(mktemp -d)
  mkdir "$work/debian"
  printf 'Source: shardplan\n\nPackage: shardplan\nArchitecture: any\n' >"$work/debian/control"
  (cd "$work" && programs | xargs dpkg-shlibdeps -O --ignore-missing-info 2>"$work/log") |
    sed -n 's/^shlibs:Depends=//p'
  rm -rf "$work"
}

# Without dpkg-dev: packages that own the shared libraries which the programs name.
unversioned() {
  programs | while read -r program; do
    needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
    ldd "$program" | awk '{ print $1, $3 }' | while read -r name path; do
      grep -qxF "$name" <<<"$needed" || continue
      real=$(readlink -f "$path")
      dpkg-query -S "$path" "$real" "${path#/usr}" 2>/dev/null | sed 's/:.*//' | head -n 1
    done
  done | sort -u | paste -sd, | sed 's/,/, /g'
}

depends=
command -v dpkg-shlibdeps >/dev/null 2>&1 && depends=$(versioned)
[ -n "$depends" ] || depends=$(unversioned)

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$root/meson.build")
architecture=$(dpkg --print-architecture)
mkdir -p "$stage/DEBIAN" "$stage/usr/share/doc/shardplan"
doc=$stage/usr/share/doc/shardplan
maintainer="${DEBFULLNAME:-shardplan developers} <${DEBEMAIL:-shardplan@localhost}>"
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
cat >"$doc/copyright" <<COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: shardplan

Files: *
Copyright: $(LC_ALL=C date -u -d "@$epoch" +%Y) shardplan developers
License: Apache-2.0
Comment: the program shardplan is linked with the GNU Scientific Library, so that it may be
 distributed as a whole under the GNU General Public License, version 3
 (/usr/share/common-licenses/GPL-3).

License: Apache-2.0
 On Debian systems the text of the licence is in /usr/share/common-licenses/Apache-2.0.
COPYRIGHT
gzip -9n >"$doc/changelog.gz" <<CHANGELOG
shardplan ($version) unstable; urgency=medium

  * What changed is in NEWS.gz beside this file.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$epoch")
CHANGELOG
gzip -9nc "$root/CHANGELOG.md" >"$doc/NEWS.gz"
find "$stage/usr/share/man" -type f ! -name '*.gz' -exec gzip -9n {} +
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
cat >"$stage/DEBIAN/control" <<CONTROL
Package: shardplan
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: science
Priority: optional
Depends: $depends
Recommends: gnuplot-nox$([ -n "$minimal" ] || echo ", openmpi-bin")
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Description: plan sharded training of large models
 Memory, bytes on each link, step time and advice for PyTorch DDP and FSDP and
 DeepSpeed ZeRO, before a GPU hour is spent, and a benchmark to prove them.
CONTROL
deb=$out/shardplan_${version}_$architecture.deb
dpkg-deb --build --root-owner-group "$stage" "$deb" >&2
echo "$deb"
