#!/usr/bin/env bash
# Installs libtpworker into a folder of its own and uses it as strangers do: CMake package, pkg-config, bare headers, symbols.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

: "${TPW_BUILD:?the build tree}" "${TPW_SOURCE:?the source tree}" "${TPW_CFLAGS:=}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "embed: $1" >&2; exit 1; }

cmake --install "$TPW_BUILD" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
library=$(find "$work/prefix" -name 'libtpworker.a' -o -name 'libtpworker.so' | head -1)
[ -n "$library" ] || fail "no libtpworker was installed"
lib=$(dirname "$library")

package() { # through find_package
  mkdir "$work/consumer"
  cp "$TPW_SOURCE/examples/embed.c" "$work/consumer/"
  cp "$TPW_SOURCE/tests/embed/consumer.cmake.txt" "$work/consumer/CMakeLists.txt"
  if ! cmake -G Ninja -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_FLAGS="$TPW_CFLAGS" >"$work/cmake.log" 2>&1 ||
    ! cmake --build "$work/consumer/build" >>"$work/cmake.log" 2>&1; then
    cat "$work/cmake.log"
    fail "a project with find_package(tpworker) does not build"
  fi
  "${MPIEXEC:-mpirun}" --bind-to none -np 1 "$work/consumer/build/consumer" "$TPW_SOURCE/models/pocket" >"$work/out" 2>&1 ||
    { cat "$work/out"; fail "the consumer does not run"; }
  [ -s "$work/out" ] || fail "the consumer printed nothing"
}

pkg_config() {
  local flags
  flags=$(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --static --cflags --libs tpworker) || fail "pkg-config"
  # shellcheck disable=SC2086 # flags are words
  cc -std=c17 $TPW_CFLAGS "$TPW_SOURCE/examples/embed.c" -o "$work/pkg" $flags || fail "pkg-config's flags do not link"
}

headers() { # each alone, as C17 and as C++17
  local header mpi
  mpi=$(pkg-config --cflags ompi-c)
  for header in "$work"/prefix/include/tpworker/*.h; do
    # shellcheck disable=SC2086
    cc -std=c17 -Wall -Wextra -Werror -fsyntax-only -x c $mpi -I"$work/prefix/include" "$header" || fail "$header as C17"
    # shellcheck disable=SC2086
    c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -x c++ $mpi -DOMPI_SKIP_MPICXX -I"$work/prefix/include" "$header" ||
      fail "$header as C++17"
  done
}

symbols() { # the archive offers nothing without the prefix, but for what nvcc names after a file's own hash; a shared object made of it exports the API alone
  local odd exported declared
  case $library in *.a) ;; *) return ;; esac
  odd=$(nm -g --defined-only "$library" | awk 'NF == 3 && $3 !~ /^(tpw_|__odr_asan|_?_asan|_?_ubsan)|__device_stub__|_GLOBAL__N__/ { print $3 }' | head -5)
  [ -z "$odd" ] || fail "symbols without the prefix: $odd"
  declared=$(sed -n 's/.*TPW_API.*[ *]\(tpw_[a-z_]*\)(.*/\1/p' "$work"/prefix/include/tpworker/*.h | sort -u)
  # shellcheck disable=SC2086
  cc -shared $TPW_CFLAGS -o "$work/all.so" -Wl,--whole-archive "$library" -Wl,--no-whole-archive 2>/dev/null || return 0
  exported=$(nm -D --defined-only "$work/all.so" | awk '$3 ~ /^tpw_/ { print $3 }' | sort -u)
  [ "$exported" = "$declared" ] || { diff <(echo "$declared") <(echo "$exported") || true; fail "exports are not the API (< declared, > exported)"; }
  echo "embed: $(echo "$exported" | wc -l) functions exported, all of them declared"
}

package
pkg_config
headers
symbols
echo "embed: package, pkg-config, headers and symbols are right"
