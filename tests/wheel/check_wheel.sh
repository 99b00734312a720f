#!/bin/sh
# check_wheel.sh WHEEL PYTHON [notebooks]: the wheel installs without a compiler and computes, in a new environment.
# With a third word it runs the notebooks of the documentation that need nothing but the wheel, too.
# The dependencies are borrowed from PYTHON's environment (a second torch would cost a gigabyte); a path
# file adds its packages but not its own path files, so its editable geoattn stays out of sight.
set -eu
unset PYTHONPATH # nothing but the wheel and what it borrows
wheel=$1
python=$2
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

"$python" -m venv "$room/venv"
CC=/bin/false CXX=/bin/false "$room/venv/bin/python" -m pip install -qq --no-deps --no-index "$wheel"
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -c "$packages" > "$("$room/venv/bin/python" -c "$packages")/borrowed.pth"

cd "$room"
venv/bin/python - <<'EOF'
import sys
from pathlib import Path

import numpy as np

import geoattn

home = Path(sys.prefix).resolve()
for module in (geoattn, sys.modules.get("geoattn._native", geoattn)):
    assert home in Path(module.__file__).resolve().parents, f"{module.__file__} is not from the wheel"

kappa = geoattn.ollivier_ricci(np.full((4, 4), 0.25)).kappa
off_diagonal = kappa[~np.eye(4, dtype=bool)]
assert np.allclose(off_diagonal, 1.0), f"equal rows must give curvature 1, got {off_diagonal}"
native = sys.modules["geoattn._native"].__file__
assert home in Path(native).resolve().parents, f"{native} is not from the wheel"
print(f"geoattn {geoattn.__version__}: installed without a compiler, curvature computed")
EOF
venv/bin/geoattn --help > /dev/null
if [ "${3:-}" = notebooks ]; then
  env -u GEOATTN_DATA -u GEOATTN_MODELS CC=/bin/false CXX=/bin/false HF_HUB_OFFLINE=1 \
    venv/bin/python "$docs/make_notebooks.py" --check embedded
fi
