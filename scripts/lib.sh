# shellcheck shell=bash
# What the scripts share. Sourced: sets `root` and goes there.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
script=scripts/$(basename "$0")
logs=build/logs

die() {
  echo "$script: $1" >&2
  exit 1
}
usage() {
  echo "usage: $1" >&2
  exit 2
}
trap 'echo "$script: failed at line $LINENO: $BASH_COMMAND" >&2' ERR

# run NAME COMMAND…: runs the command with its output in a log, prints one line with the seconds it took; when it fails, the
# end of the log and where the rest is.
run() {
  local name=$1 log=$logs/${1//[ \/]/-}.log start=$SECONDS
  shift
  mkdir -p "$logs"
  if "$@" >"$log" 2>&1 </dev/null; then
    printf '%-32s %4d s\n' "$name" $((SECONDS - start))
    return 0
  fi
  printf '%-32s %4d s  FAILED\n' "$name" $((SECONDS - start))
  tail -n 40 "$log" >&2
  echo "$script: $name failed; all of its output is in $log" >&2
  return 1
}

# use_python_package PRESET: .venv imports the Python package of this build from now on.
use_python_package() {
  [[ ! -d build/$1/python ]] ||
    echo "$root/build/$1/python" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ballast.pth"
}
