"""Integrate dx/dt = rate(x), x: (n,) or (n, *B) for B starts at once, with an estimate of the error."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import DOP853

from solve.differences import noise
from solve.result import Array, Status

__all__ = ["AbstractIntegrator", "DormandPrince", "Rate", "Step", "Trajectory", "resolution"]

Rate: TypeAlias = Callable[[Array], Array]  # (n, *B) -> (n, *B)

_TIGHTEST = 3e-14  # the relative tolerance below which rounding rules
LOOSER = 10.0  # tolerance of the second run, whose distance from the first is the error
_BELOW_START = 1e-3  # absolute tolerance = rtol * this * |start|: a start of 1e-6 keeps its relative accuracy
_SHARE = 1e-2  # part of the error of the rate that may be added to it
_NO_START = 1e-6  # stands for |start| where that is 0
_RUNAWAY = 1e6  # growth after which a step that must vanish means a solution that ends in infinity


@dataclass(frozen=True, eq=False)
class Trajectory:
    """x and its estimated absolute error: (n_times, n, *B) at times: (n_times,); nan where not reached."""

    times: Array
    x: Array
    error: Array
    status: Status
    evaluations: int


@dataclass(frozen=True, eq=False)
class Step:
    """One step from `old` to `time`: the ends (n, *B), and inside(t: (k,)) -> (k, n, *B) between them.

    status: None while the integration goes on, else how it ended.
    """

    old: float
    time: float
    x_old: Array
    x: Array
    inside: Callable[[Array], Array]
    status: Status | None


class AbstractIntegrator(abc.ABC):
    """A method for dx/dt = rate(x), autonomous. Final subclasses are frozen dataclasses with its settings."""

    @property
    @abc.abstractmethod
    def precision(self) -> float:
        """The relative error that may remain where two runs happen to take the same steps."""

    @abc.abstractmethod
    def steps(
        self, rate: Rate, start: Array, until: float, looser: float = 1.0, floor: ArrayLike = 0.0
    ) -> Iterator[Step]:
        """The steps from x(0) = start: (n, *B) to the time `until`.

        looser: multiplies the tolerance. floor: (n, *B), the least absolute tolerance, see `resolution`.
        """

    def integrate(self, rate: Rate, start: ArrayLike, times: ArrayLike, perturbed: Rate | None = None) -> Trajectory:
        """x(t) at increasing `times` >= 0 with x(0) = start: (n, *B); all B starts advance as one system.

        The error is the distance from a second run at a looser tolerance; that run uses `perturbed`, the rate
        plus its own error, where given. Raises `ValueError` for times that are not increasing or negative.
        """
        x0, t = np.asarray(start, dtype=float), _checked(times)
        calls = 0

        def counted(f: Rate) -> Rate:
            def g(x: Array) -> Array:
                nonlocal calls
                calls += 1
                return np.asarray(f(x), dtype=float)

            return g

        floor = resolution(counted(rate), x0, perturbed)
        x, status = self._at(counted(rate), x0, t, 1.0, floor)
        other, _ = self._at(counted(perturbed or rate), x0, t, LOOSER, floor)
        return Trajectory(t, x, _envelope(np.abs(x - other)) + self.precision * np.abs(x), status, calls)

    def _at(self, rate: Rate, x0: Array, times: Array, looser: float, floor: Array) -> tuple[Array, Status]:
        x = np.full((times.size, *x0.shape), np.nan)
        x[times == 0] = x0
        for step in self.steps(rate, x0, float(times[-1]), looser, floor):
            here = (times > step.old) & (times <= step.time)
            if here.any() and step.time > step.old:
                x[here] = step.inside(times[here])
            if step.status is not None:
                return x, step.status
        return x, Status.converged


@dataclass(frozen=True)
class DormandPrince(AbstractIntegrator):
    """The Dormand-Prince pair of order 8(5,3), dense output of order 7. [Hairer, Norsett, Wanner, ODEs I, II.5]

    rtol holds for each start of a batch; the absolute tolerance follows the size of each start, so that small
    starts keep their relative accuracy. The default leaves 1e-9 after the growth of errors along a flow and after
    the interpolation, which near a stable fixed point is up to a hundred times less accurate than the steps.
    """

    rtol: float = 1e-12
    max_steps: int = 100_000

    def __post_init__(self) -> None:
        if not _TIGHTEST <= self.rtol < 1 or self.max_steps < 1:
            raise ValueError(f"{_TIGHTEST} <= rtol < 1 and max_steps >= 1 are needed, got {self}.")

    @property
    def precision(self) -> float:
        """Ten times rtol."""
        return 10 * self.rtol

    def steps(
        self, rate: Rate, start: Array, until: float, looser: float = 1.0, floor: ArrayLike = 0.0
    ) -> Iterator[Step]:
        """The steps of the method, see the base class."""
        if until <= 0:
            return
        with np.errstate(all="ignore"):
            defined = np.isfinite(rate(start)).all()
        if not defined:  # SciPy would look for a first step for ever
            yield Step(0.0, 0.0, start, start, _dense(None, start), Status.nonfinite)
            return
        method = self._method(rate, start, until, looser, floor)
        for count in range(1, self.max_steps + 1):
            old, x_old = method.t, method.y.reshape(start.shape).copy()
            with np.errstate(all="ignore"):
                method.step()
            status = None
            if method.status == "failed":
                grown = np.max(np.abs(x_old)) > _RUNAWAY * np.max(np.abs(start), initial=1.0)
                status = Status.diverges if grown else Status.nonfinite
            elif method.status == "finished":
                status = Status.converged
            elif count == self.max_steps:
                status = Status.max_steps
            yield Step(old, method.t, x_old, method.y.reshape(start.shape), _dense(method, x_old), status)
            if status is not None:
                return

    def _method(self, rate: Rate, start: Array, until: float, looser: float, floor: ArrayLike) -> DOP853:
        copies = max(1, int(np.prod(start.shape[1:])))
        # SciPy bounds the root mean square over the whole system
        rtol = min(max(looser * self.rtol / np.sqrt(copies), _TIGHTEST), 1e-3)
        atol = np.maximum(rtol * _BELOW_START * _size(start), floor)

        def flat(t: float, x: Array) -> Array:
            return np.asarray(rate(x.reshape(start.shape)), dtype=float).ravel()

        with np.errstate(all="ignore"):
            return DOP853(flat, 0.0, start.ravel(), until, rtol=rtol, atol=atol.ravel())


def resolution(rate: Rate, x: Array, perturbed: Rate | None = None) -> Array:
    """What the noise of the rate, and a hundredth of its error, add to x: (n, *B) in the flow's shortest time scale.

    No step, however short, meets a tolerance below the noise; and below that part of the error none is worth it.
    """
    size = _size(x)
    with np.errstate(all="ignore"):
        value = np.asarray(rate(x), dtype=float)
        level, _ = noise(rate, x, value)
        if perturbed is not None:
            level = level + _SHARE * np.abs(perturbed(x) - value)
        gathered = level * np.min(size / np.abs(value), axis=0)
    return np.where(np.isfinite(gathered), gathered, 0.0)


def _size(start: Array) -> Array:
    """|x| of each component, for one that starts at 0 the largest of its trajectory."""
    size = np.abs(start)
    size = np.where(size > 0, size, np.max(size, axis=0, keepdims=True, initial=0.0))
    return np.where(size > 0, size, _NO_START)


def _dense(method: DOP853 | None, x: Array) -> Callable[[Array], Array]:
    if method is None or method.t == method.t_old or method.status == "failed":
        return lambda t: np.repeat(x[None], len(t), axis=0)
    made = None

    def inside(t: Array) -> Array:
        nonlocal made
        made = made or method.dense_output()  # three more calls of the rate: only where asked for
        return np.asarray(made(np.asarray(t)).T.reshape(len(t), *x.shape), dtype=float)

    return inside


def _envelope(distance: Array) -> Array:
    """Two runs also meet by chance: twice the distance, at least the geometric mean of its neighbours in time."""
    error = distance.copy()
    error[1:-1] = np.maximum(error[1:-1], np.sqrt(distance[:-2] * distance[2:]))
    return 2 * error


def _checked(times: ArrayLike) -> Array:
    t = np.atleast_1d(np.asarray(times, dtype=float))
    if t.ndim != 1 or t.size == 0 or not np.isfinite(t).all() or t[0] < 0 or np.any(np.diff(t) <= 0):
        raise ValueError(
            "times must be increasing, finite and >= 0 (the start is at time 0), got "
            f"{np.array2string(t, threshold=8)}."
        )
    return t
