#!/usr/bin/env bash
# Installs the Debian 12 packages that tpworker is built and tested with. Says what it installs; uses sudo only when not root.
# With --extra: those of the checks on the text (clang-format, shellcheck) too.
set -euo pipefail

packages=(
  gcc g++ libc6-dev cmake ninja-build pkgconf            # build
  libopenmpi-dev openmpi-bin                         # ranks
  libhwloc-dev                                       # topology
  libjansson-dev libxxhash-dev                       # JSON, hashes
  libpcre2-dev libutf8proc-dev                       # tokenizer
  libcriterion-dev                                   # tests
)
[ "${1:-}" != --extra ] || packages+=(clang-format shellcheck)

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: install as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]} (about 100 MB, a minute or two)"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done"
