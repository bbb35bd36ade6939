"""What holds for every test: one thread, deterministic Hypothesis, no changed numerical settings.

Warnings are errors and the markers are declared in pyproject.toml.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import hypothesis
import pytest

# Read by numpy's and torch's thread pools when they are first imported, hence no import of either above.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
os.environ.setdefault("MPLBACKEND", "Agg")

hypothesis.settings.register_profile("limitlaw", derandomize=True, deadline=None, print_blob=True, database=None)
hypothesis.settings.load_profile("limitlaw")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch sees none here")


@pytest.fixture(autouse=True)
def unchanged_numerics() -> Iterator[None]:
    """No test and no package changes a process-wide numerical setting or draws from a global stream.

    torch's default stays float32 on purpose: our code has to ask for float64 by name, as it does for users.
    """
    before = _numpy_and_torch()
    yield
    after = _numpy_and_torch()
    if torch := sys.modules.get("torch"):
        settings = torch.get_default_dtype(), torch.get_num_threads()
        torch.set_default_dtype(torch.float32)  # so that one culprit fails, not every test after it
        torch.set_num_threads(1)
        assert settings == (torch.float32, 1), f"the test left torch's default dtype and threads at {settings}"
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"the test changed, for the whole process: {', '.join(changed)}"


def _numpy_and_torch() -> dict[str, object]:
    """What is global in those of the two that something has imported: a test of `derive` pays for neither."""
    found: dict[str, object] = {}
    if numpy := sys.modules.get("numpy"):
        state = numpy.random.get_state()
        found["numpy's error handling"] = numpy.geterr()
        found["numpy's global stream"] = (state[1].tobytes(), *state[2:])
    if torch := sys.modules.get("torch"):
        found["torch's global stream"] = torch.get_rng_state().numpy().tobytes()
    return found


@pytest.fixture
def assert_float64() -> Callable[[Any], None]:
    """A check that every array and tensor in a value, at any depth of mappings and sequences, is float64."""

    def check(value: Any, where: str = "value") -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                check(item, f"{where}[{key}]")
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                check(item, f"{where}[{i}]")
        else:
            kind = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
            assert kind in {"float64", "float"}, f"{where} is {kind}, not float64"

    return check
