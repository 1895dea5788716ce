# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh and test.sh: finds what a build needs and installs what is missing.
# shellcheck disable=SC2034 # the rows are for the scripts that source this
# A row: what proves that it is there (command, pkg-config module or header), then its package.

packages_build="
command:cc gcc
command:c++ g++
command:git git
command:meson meson
command:ninja ninja-build
command:pkg-config pkg-config
command:python3 python3
command:gnuplot gnuplot-nox
module:libcjson libcjson-dev
module:gsl libgsl-dev
module:yaml-0.1 libyaml-dev
module:expat libexpat1-dev
"

# Used when found: the build goes on without them.
packages_automatic="
command:mpirun openmpi-bin
module:ompi-c libopenmpi-dev
module:liburing liburing-dev
module:hwloc libhwloc-dev
module:numa libnuma-dev
"

packages_test="
module:cmocka libcmocka-dev
python:yaml python3-yaml
"

packages_test_automatic="
command:clang clang
command:clang-format clang-format
command:chromium chromium
command:fio fio
command:xmllint libxml2-utils
"

packages_say() {
  printf '%s\n' "$*" >&2
}

packages_has() { # probe
  case $1 in
    command:*) command -v "${1#*:}" >/dev/null 2>&1 ;;
    module:*) pkg-config --exists "${1#*:}" 2>/dev/null ;;
    python:*) python3 -c "import ${1#*:}" 2>/dev/null ;;
  esac
}

packages_missing() { # rows
  printf '%s\n' "$1" | while read -r probe package; do
    [ -z "$probe" ] || packages_has "$probe" || printf '%s ' "$package"
  done
}

packages_as_root() {
  if [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive "$@" >&2
  elif command -v sudo >/dev/null 2>&1; then
    sudo DEBIAN_FRONTEND=noninteractive "$@" >&2
  else
    packages_say "Neither root nor sudo: run this as root: $*"
    return 1
  fi
}

packages_install() { # package...
  packages_as_root apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
}

# packages_need REQUIRED-ROWS AUTOMATIC-ROWS: stops the script when a required one cannot be had.
packages_need() {
  [ -x /usr/local/cuda/bin/nvcc ] && PATH=$PATH:/usr/local/cuda/bin
  required=$(packages_missing "$1")
  automatic=$(packages_missing "$2")
  [ -n "$required$automatic" ] || return 0
  if ! command -v apt-get >/dev/null 2>&1; then
    [ -z "$automatic" ] || packages_say "Not found (the build goes on without): $automatic"
    [ -n "$required" ] || return 0
    packages_say "Needed, by their Debian names: $required"
    packages_say "This system has no apt: install them in its own way, then run again."
    exit 4
  fi
  packages_say "Installing: $required$automatic"
  packages_as_root apt-get -o DPkg::Lock::Timeout=120 update -q ||
    packages_say "apt-get update failed"
  # shellcheck disable=SC2086 # lists of words
  packages_install $required $automatic && return 0
  # shellcheck disable=SC2086
  if [ -n "$required" ] && ! packages_install $required; then
    packages_say "Needed, and could not be installed: $required"
    exit 4
  fi
  for package in $automatic; do
    packages_install "$package" || packages_say "Going on without $package"
  done
}
