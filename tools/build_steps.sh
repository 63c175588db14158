# SPDX-License-Identifier: Apache-2.0
# Functions that ./run, ./test and tools/check share: messages, and configuring and building one folder. To be sourced.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2034  # used by the scripts that source this file
nothing_optional=(-Dauto_features=disabled -Dtests=enabled)

say() { if [ -t 1 ]; then printf '\033[1m==> %s\033[0m\n' "$*"; else echo "==> $*"; fi; }
die() { echo "error: $*" >&2; exit 1; }

# Most of the time to compile a file goes into standard headers, so files of one library are compiled several at a time.
together=(-Dunity=on -Dunity_size=12)
# A compiler cache, if there is one, finds what another build folder has compiled.
export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD}

# configure FOLDER OPTION...: configures once, and again if the options, compilers, flags or installed packages change.
# CUDA kernels take as long to compile as everything else, so they need a card that answers, or -Dcuda=enabled.
configure() {
  local folder=$1 wanted stamp=$1/.configured_with log packages
  packages=$(dpkg-query -W -f '${Package} ${db:Status-Status} ' catch2 libeigen3-dev libmd-dev libdnnl-dev 2>/dev/null || true)
  [[ " ${*:2}" == *" -Dcuda="* ]] || nvidia-smi -L >/dev/null 2>&1 || set -- "$@" -Dcuda=disabled
  wanted="${together[*]} ${*:2} CC=${CC-} CXX=${CXX-} CXXFLAGS=${CXXFLAGS-} LDFLAGS=${LDFLAGS-} $(command -v nvcc mpiexec | xargs || true) $packages"
  [ -f "$folder/build.ninja" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  say "Configuring $folder"
  rm -rf "$folder"/{build.ninja,meson-private,meson-info,.configured_with}
  mkdir -p "$folder"
  log=$folder/configure.log
  if ! meson setup "$folder" -Dtests=auto -Dapps=enabled -Dbench=auto "${together[@]}" "${@:2}" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "configuring failed; all of its output is in $log"
  fi
  sed -n '/^weft /,/^Found ninja/{/^Found ninja/!p}' "$log"
  echo "$wanted" >"$stamp"
}

# run_tests FOLDER [OPTION...]: of Meson's. A limit is there to end what hangs: a machine may be slower than those on which
# the limits were chosen.
run_tests() { meson test -C "$1" --no-rebuild --print-errorlogs --timeout-multiplier 3 "${@:2}"; }

# build FOLDER [TARGET...]
build() {
  say "Building ${2-everything} in $1"
  # shellcheck disable=SC2086  # NINJAFLAGS may hold several
  ninja -C "$1" ${NINJAFLAGS-} "${@:2}" || die "the build in $1 failed; the first error above is the one to look at"
}
