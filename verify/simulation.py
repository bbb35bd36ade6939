"""A finite-size simulation repeated over seeds; each replica has its own stream, whatever the batching."""

from __future__ import annotations

import abc
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from derive.equations import Quantity

__all__ = [
    "AbstractSimulation",
    "Ensemble",
    "Observation",
    "checked_values",
    "default_device",
    "fill_normal",
    "normal",
    "replicate",
    "row_sums",
    "stream",
    "tree_sums",
    "value_of",
]

Array: TypeAlias = NDArray[np.float64]
Values: TypeAlias = Mapping[sp.Symbol, float]

LANES = 16
"""Batches are padded to a multiple of this many float64, two of the widest vector registers: no replica falls to
the scalar tail of a vector loop, whose exp or sigmoid differs from the vector one in the last bit."""

_SERIAL = 1024  # replicas at most in a batch on the CPU: torch leaves so few numbers to one thread


@dataclass(frozen=True, eq=False)
class Observation:
    """What one batch measured: `observed` (n_replicas,) or (n_replicas, n_axis), along `axis` (n_axis,)."""

    axis: Array | None
    observed: Mapping[sp.Symbol, Array]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """The replicas of one size: `observed` (n_trials,) or (n_trials, n_axis), row j from `seeds[j]`.

    A value that a replica did not reach (an escape within the steps allowed, say) is nan.
    """

    size: int
    seeds: tuple[int, ...]
    axis: Array | None
    observed: Mapping[sp.Symbol, Array]
    device: str = "cpu"

    def __getitem__(self, quantity: sp.Symbol) -> Array:
        if quantity not in self.observed:
            raise KeyError(f"{quantity} was not observed; {', '.join(map(str, self.observed))} were.")
        return self.observed[quantity]


class AbstractSimulation(abc.ABC):
    """A model at finite size. Final subclasses are frozen dataclasses in verify/simulations/<family>.py."""

    @abc.abstractmethod
    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """Simulate one replica for each generator, on its device; all its numbers come from it alone.

        Row j must not depend on the other rows, nor on their number, in any bit: draw by `normal` and
        `fill_normal`, add up by `row_sums`, pad the batch to a multiple of `LANES`.
        """

    def device(self) -> torch.device:
        """Where it runs unless it is told."""
        return default_device()

    def work(self, size: int) -> float:
        """What a replica costs, in any unit: as many steps as the size, each proportional to it."""
        return float(size) ** 2


def replicate(
    simulation: AbstractSimulation,
    parameters: Values,
    *,
    size: int,
    seeds: Sequence[int],
    device: torch.device | None = None,
    batch: int = 128,
) -> Ensemble:
    """Run `simulation` at `size` once for each seed, `batch` replicas at a time.

    Neither `batch` nor the other seeds change a replica, in any bit; another kind of device does. A batch on the
    CPU holds 1024 replicas at most.
    Raises `ValueError` for a repeated seed, a seed outside 0..2**32-1, or a size or batch below 1.
    """
    seeds = tuple(int(s) for s in seeds)
    _check(size, seeds, batch)
    device = simulation.device() if device is None else device
    batch = min(batch, _SERIAL) if device.type == "cpu" else batch
    generators = [stream(simulation, size, seed, device) for seed in seeds]
    parts = [simulation.run(parameters, size, generators[i : i + batch]) for i in range(0, len(seeds), batch)]
    observed = {q: np.concatenate([p.observed[q] for p in parts]) for q in parts[0].observed}
    return Ensemble(size, seeds, parts[0].axis, observed, str(device))


def _check(size: int, seeds: tuple[int, ...], batch: int) -> None:
    if size < 1 or batch < 1:
        raise ValueError(f"replicate: size and batch must be at least 1, got {size} and {batch}.")
    if not seeds:
        raise ValueError("replicate: no seeds were given. Give one seed for each replica.")
    if len(set(seeds)) < len(seeds):
        raise ValueError("replicate: a seed is given twice, and equal seeds give equal replicas.")
    if min(seeds) < 0 or max(seeds) >= 2**32:
        raise ValueError(f"replicate: seeds are integers from 0 to 2**32 - 1, got {min(seeds)}..{max(seeds)}.")


def default_device() -> torch.device:
    """CUDA where there is a device for it, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def stream(simulation: AbstractSimulation, size: int, seed: int, device: torch.device) -> torch.Generator:
    """The generator of one replica: torch's own (Mersenne twister on the CPU, Philox on CUDA).

    Its key is seed + CRC(class of the simulation, size) mod 2**32 (the CPU's generator reads 32 bits), so the
    streams of different seeds differ, and ensembles of several sizes are independent.
    """
    offset = zlib.crc32(f"{type(simulation).__name__} {size}".encode())
    return torch.Generator(device).manual_seed((seed + offset) % 2**32)


def normal(generators: Sequence[torch.Generator], shape: tuple[int, ...]) -> Tensor:
    """Independent N(0, 1) in float64, (n_replicas, *shape): each replica draws a block of that shape."""
    device = generators[0].device
    draws = [torch.randn(shape, generator=g, dtype=torch.float64, device=device) for g in generators]
    return torch.stack(draws)


def fill_normal(out: Tensor, generators: Sequence[torch.Generator]) -> None:
    """Fill out (n_rows, ...) by rows with N(0, 1); rows beyond the generators are left as they are.

    What a stream gives depends on the shapes that it was asked for, so a caller keeps them fixed.
    """
    for row, generator in zip(out, generators, strict=False):
        row.normal_(generator=generator)


def row_sums(x: Tensor) -> Tensor:
    """Sums over the last axis, each bitwise independent of the number of rows."""
    if x.device.type == "cpu":
        return x.sum(-1)  # one row after the other, each in the same order
    return tree_sums(x)  # a reduction kernel would choose its order by the number of rows


def tree_sums(x: Tensor) -> Tensor:
    """Sums over the last axis by halves, elementwise: on any device the same order for any number of rows."""
    x = x.clone()
    n = x.shape[-1]
    while n > 1:
        half = (n + 1) // 2
        x[..., : n - half].add_(x[..., half:n])
        n = half
    return x[..., 0]


def checked_values(quantities: Sequence[Quantity], given: Values) -> dict[sp.Symbol, float]:
    """A number for each parameter: the one given, else its default.

    Raises `ValueError` for a missing or an unknown parameter, or a value outside the parameter's domain.
    """
    known = {q.symbol: q for q in quantities}
    unknown = sorted(str(s) for s in given if s not in known)
    missing = sorted(str(s) for s, q in known.items() if s not in given and q.default is None)
    if unknown or missing:
        raise ValueError(f"The simulation needs values for {missing}, and does not know {unknown}.")
    values = {s: _exact(given.get(s, q.default)) for s, q in known.items()}
    for s, value in values.items():
        if value not in known[s].domain:
            raise ValueError(f"{s} = {value} is outside its domain {known[s].domain}.")
    return {s: float(v) for s, v in values.items()}


def value_of(formula: sp.Expr, values: Values) -> float:
    """A formula of the parameters as a number."""
    return float(formula.xreplace({s: sp.Float(v) for s, v in values.items()}))


def _exact(value: float | sp.Expr) -> sp.Expr:
    """The number as SymPy's sets know it: 2.0 is the integer 2, which a domain of integers holds."""
    if isinstance(value, sp.Expr):
        return value
    return sp.Rational(value) if math.isfinite(value) else sp.nan
