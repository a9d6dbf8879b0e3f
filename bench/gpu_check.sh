#!/usr/bin/env bash
# Checks and times everything on a machine with a GPU, straight from the tree: nothing is installed, no network needed.
#
#   bash bench/gpu_check.sh --data DIR --out DIR
#
# Needs Python 3.12 (PYTHON names another), CuPy 14 for CUDA 13, and what bench/pack_data.py put into DIR. Ends within
# six minutes. What it unpacks and compiles stays in the user's caches, so that a second run begins sooner.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

data="" device=cuda
arguments=("$@")
for ((at = 0; at < $#; at++)); do
    case ${arguments[at]} in
        --data) data=${arguments[at + 1]:-} ;;
        --data=*) data=${arguments[at]#*=} ;;
        --device) device=${arguments[at + 1]:-} ;;
        --device=*) device=${arguments[at]#*=} ;;
    esac
done
if [ -z "$data" ]; then
    echo "usage: bash bench/gpu_check.sh --data DIR --out DIR" >&2
    exit 2
fi

kept=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/gpu_tok/gpu_check
mkdir -p "$kept" 2>/dev/null && [ -w "$kept" ] || kept=$(mktemp -d)
rm -rf "$kept/site"
mkdir -p "$kept/site" "$kept/numba"
export PYTHONPATH="$kept/site:$tree:$tree/bench" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR-$kept/numba} CUPY_CACHE_DIR=$kept/cupy TOKENIZERS_PARALLELISM=true

if compgen -G "$data/wheels/*.whl" >/dev/null; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
        --root-user-action=ignore --target "$kept/site" "$data"/wheels/*.whl
fi
"$python" -m on_gpu.versions --data "$data" --device "$device"
exec "$python" "$tree/bench/gpu_check.py" "$@"
