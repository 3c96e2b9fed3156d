"""The cache of compiled kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pgbm_plugin.kernels import jit

INNER = "from .jit import scalar\n\n\n@scalar\ndef inner(x):\n    return x + {added}\n"
OUTER = "from .inner import inner\nfrom .jit import kernel\n\n\n@kernel\ndef outer(x):\n    return inner(x)\n"
CALL = "from package.kernels.outer import outer; print(outer(1.0), sum(outer.stats.cache_hits.values()))"


def test_a_kernel_is_compiled_again_when_what_it_inlines_has_changed(tmp_path):
    """An upgrade may change kernels/scalar.py alone, and numba itself looks only at the kernel's own file."""
    kernels = tmp_path / "package" / "kernels"
    trees = tmp_path / "package" / "trees"
    kernels.mkdir(parents=True)
    trees.mkdir()
    for path in (kernels / "__init__.py", trees / "forest.py", trees / "objectives.py"):
        path.touch()
    shutil.copy(jit.__file__, kernels)
    Path(kernels / "outer.py").write_text(OUTER)
    answers = []
    for added in (1, 1, 100):
        (kernels / "inner.py").write_text(INNER.format(added=added))
        run = [sys.executable, "-B", "-c", CALL]
        answers.append(subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split())
    assert answers == [["2.0", "0"], ["2.0", "1"], ["101.0", "0"]]
