#!/usr/bin/env bash
# K trials of a bank against a loop around HF's generate on one GPU, from a checkout: nothing is installed.
#   bash tests/bench/gpu.sh --out FILE.json
#   bash tests/bench/gpu.sh --device cpu --tiny --out FILE.json
# PYTHON names another interpreter than python3. Flags: tests/bench/gpu_bank.py --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
missing=$("$python" - <<'END'
from importlib.util import find_spec
needed = ("torch numpy transformers accelerate safetensors tokenizers peft "
          "pydantic pydantic_core annotated_types typing_inspection typing_extensions")
print(*(name for name in needed.split() if find_spec(name) is None))
END
)
if [ -n "$missing" ]; then
  echo "gpu.sh: $python lacks: $missing (pydantic brings pydantic_core, annotated_types and typing_inspection)" >&2
  exit 2
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
exec "$python" "$root/tests/bench/gpu_bank.py" "$@"
