"""One-pass spherical SGD of a sequence single-index model by its overlaps alone: equal in law to the d-dimensional run.

The model is `direct_sgd`'s; the chain is `verify.projected`'s, with D_i = d loss/d phi_i by SymPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray

from derive.task import dimension
from derive.tasks.sequence_single_index import SequenceSingleIndex, Start
from verify.projected import Path, Projection, project
from verify.simulation import Observation, Values
from verify.simulations.training_run import AbstractTraining, Clock

__all__ = ["ProjectedSGD", "field_slopes"]

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ProjectedSGD(AbstractTraining):
    """The training run at a cost independent of d, see `AbstractTraining`; equal in law to `SphericalSGD`.

    It runs on the CPU, on as many threads as Numba is given; a replica has a PCG64 stream of its own, seeded by its
    generator. Raises, in addition, `NotImplementedError` for a function without machine code.
    """

    def device(self) -> torch.device:
        """The CPU: the chain has no use for another."""
        return torch.device("cpu")

    def work(self, size: int) -> float:
        """Proportional to the steps, which are proportional to the size."""
        return float(size)

    def run(self, parameters: Values, size: int, generators: Sequence[torch.Generator]) -> Observation:
        """Overlaps (n_replicas, n_times) by symbol, and `ESCAPE` (n_replicas,) where it is asked for."""
        clock = self.clock(parameters, size)
        chain = self.projection(clock)
        steps = self.steps(clock)
        stops, place = np.unique(steps, return_inverse=True)
        limit = 0 if self.escape is None else self.max_steps

        start = self._start(chain, clock)

        def path(rng: np.random.Generator) -> Path:
            return chain.run(rng, start(rng), stops, self.escape, limit)

        with ThreadPoolExecutor(numba.get_num_threads()) as pool:
            paths = list(pool.map(path, map(_stream, generators)))
        overlaps = np.stack([p.overlaps for p in paths], axis=1)[place]
        return self.observation(clock, overlaps, np.array([p.escape for p in paths]))

    def projection(self, clock: Clock) -> Projection:
        """The chain of the task at the clock's parameters and size."""
        values = {**clock.values, dimension: float(clock.size)}
        return project(self.task.problem, field_slopes(self.task), values, clock.rate, clock.vectors * clock.size)

    def _start(self, chain: Projection, clock: Clock) -> Callable[[np.random.Generator], Array]:
        if isinstance(self.task.start, Mapping):
            state = chain.prepared(clock.prepared(self.task.start, self.task.overlap_symbols))
            return lambda rng: state
        positions = range(1, len(self.task.overlaps)) if self.task.positions is not None else ()
        return functools.partial(chain.drawn, avoided=positions if self.task.start is Start.ORTHOGONAL else ())


def _stream(generator: torch.Generator) -> np.random.Generator:
    """The replica's stream, keyed by 256 bits of its generator."""
    key = torch.randint(0, 2**32, (8,), generator=generator, dtype=torch.int64, device=generator.device)
    return np.random.Generator(np.random.PCG64(key.tolist()))


@functools.lru_cache(maxsize=64)
def _slopes(
    loss: sp.Lambda, outputs: tuple[sp.Expr, ...], labels: tuple[sp.Expr, ...], fields: tuple[sp.Symbol, ...]
) -> tuple[sp.Expr, ...]:
    count = len(outputs)
    f, y = (sp.symbols(f"{name}1:{count + 1}", real=True, cls=sp.Dummy) for name in "fy")
    value, known = loss(*f, *y), dict(zip((*f, *y), (*outputs, *labels), strict=True))
    outer = [value.diff(a).xreplace(known) for a in f]
    slopes = [sp.Add(*(o * g.diff(s) for o, g in zip(outer, outputs, strict=True))) for s in fields]
    return tuple(s.replace(sp.DiracDelta, lambda *at: sp.S.Zero) for s in slopes)


def field_slopes(task: SequenceSingleIndex) -> tuple[sp.Expr, ...]:
    """D_i = sum_k (d loss/d f_k) (d f_k/d phi_i) almost everywhere: a jump has no slope, as for autograd."""
    return _slopes(task.loss, task.student.output, task.target, task.student.fields)
