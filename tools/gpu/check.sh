#!/bin/sh
# Builds pyft and checks it on this machine's GPU, in under 9 minutes and without a network: one
# line per check, exit code 1 if any fails. Without a GPU, or with --soft, soft GPUs take its
# place and what only a real one can show is skipped with the reason.
#
#     tools/gpu/check.sh [--soft] [--only NAME,...] [--list] [--markdown FILE] [--artifacts DIR]
#                        [--wheels DIR]
#
# Needs PyTorch 2.11.0+cu130 with its dependencies, a C++20 compiler, meson and ninja; nvcc for the
# measurements that run kernels. PYTHON names the interpreter, else .venv's or python3 is taken.
# DIR may hold wheels of what is missing (typer with its dependencies; transformers for one check).
set -eu
unset PYTHONSAFEPATH  # the scripts import what lies beside them
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
python=${PYTHON:-}
if [ -z "$python" ]; then
  # Not imported: that takes a minute where nothing of it has been read yet.
  has_torch='import importlib.util as i, sys; sys.exit(i.find_spec("torch") is None)'
  for candidate in "$root/.venv/bin/python" "$(command -v python3 || true)"; do
    if [ -x "$candidate" ] && "$candidate" -c "$has_torch" 2>/dev/null; then
      python=$candidate
      break
    fi
  done
fi
if [ -z "$python" ]; then
  echo "check.sh: no Python with PyTorch: run make build, or set PYTHON" >&2
  exit 2
fi
exec "$python" "$root/tools/gpu/check.py" "$@"
