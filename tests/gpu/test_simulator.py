"""Run the tests of the GPU in a process where numba's simulator plays the GPU.

The simulator has to be chosen before numba is imported.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT


@pytest.mark.parametrize(("name", "at_least"), [("test_cuda.py", 40), ("test_cuda_arrays.py", 15)])
def test_in_the_simulator(name, at_least):
    if os.environ.get("NUMBA_ENABLE_CUDASIM"):
        pytest.skip("runs others in the simulator, and is in it")
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", Path(__file__).with_name(name)]
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout[-5000:]
    passed = int(re.search(r"(\d+) passed", run.stdout).group(1))
    assert passed >= at_least, run.stdout[-500:]
    assert "failed" not in run.stdout
