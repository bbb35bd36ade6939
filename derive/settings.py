"""What a task file says under [solve] and [verify]: which times, sizes and seeds to use."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import sympy as sp

from derive.document import Table, TaskError

__all__ = ["Grid", "Method", "Optimiser", "SolveSettings", "VerifySettings"]


@dataclass(frozen=True, slots=True)
class Grid:
    """start:stop:count[:log], both ends included."""

    start: Fraction
    stop: Fraction
    count: int
    log: bool = False

    @classmethod
    def read(cls, text: str, what: str) -> Self:
        """Raises `TaskError` unless text is start:stop:count or start:stop:count:log."""
        parts = text.split(":")
        try:
            if len(parts) not in (3, 4) or (len(parts) == 4 and parts[3] != "log"):
                raise ValueError
            grid = cls(Fraction(parts[0]), Fraction(parts[1]), int(parts[2]), len(parts) == 4)
        except (ValueError, ZeroDivisionError):
            raise TaskError(f"{what}: {text!r} is not start:stop:count or start:stop:count:log.") from None
        if not 1 <= grid.count <= 100_000:
            raise TaskError(f"{what}: the count is {grid.count}; it may be 1 to 100000.")
        if grid.log and not (grid.start > 0 and grid.stop > 0):
            raise TaskError(f"{what}: a logarithmic grid needs positive ends, got {text!r}.")
        if grid.count > 1 and grid.start == grid.stop:
            raise TaskError(f"{what}: the ends of {text!r} coincide.")
        return grid

    def points(self) -> list[float]:
        """The grid as floats."""
        if self.count == 1:
            return [float(self.start)]
        if self.log:
            ratio = (float(self.stop) / float(self.start)) ** (1 / (self.count - 1))
            inner = [float(self.start) * ratio**i for i in range(self.count - 1)]
        else:
            step = (self.stop - self.start) / (self.count - 1)
            inner = [float(self.start + i * step) for i in range(self.count - 1)]
        return [*inner, float(self.stop)]


class Method(enum.Enum):
    """How online SGD is simulated: all weights, the overlaps alone (equal in law), or both, compared."""

    DIRECT = "direct"
    PROJECTED = "projected"
    BOTH = "both"


class Optimiser(enum.Enum):
    """How a matrix is trained: weights by L-BFGS or Adam, itself by proximal gradients or message passing."""

    LBFGS = "lbfgs"
    ADAM = "adam"
    PROXIMAL = "proximal"
    AMP = "amp"


@dataclass(frozen=True, slots=True)
class SolveSettings:
    """`times`: where a flow is reported; `escape`: the overlap that counts as escaped.

    `learning_rate_ratio`: the tied over the untied student's learning rate, the rule by which their gain is stated.
    `critical`: the name of the parameter whose critical values are derived, None to take the one without a value.
    `noise`: whether noise covariances are evaluated along the flow, None to leave that to their cost.
    `samples`: Sobol points for averages over many Gaussian variables.
    """

    times: Grid = Grid(Fraction(0), Fraction(10), 11)
    escape: sp.Expr = sp.S.Half
    learning_rate_ratio: sp.Expr = sp.S.One
    critical: str | None = None
    noise: bool | None = None
    samples: int = 2**15

    @classmethod
    def read(cls, table: Table, length: int) -> Self:
        """From the table [solve]; `length` is what L stands for."""
        times = Grid.read(table.text("times", default="0:10:11"), "solve.times")
        if times.start < 0 or times.start > times.stop or times.points()[-1] <= 0:
            raise TaskError(
                f"solve.times: times run from 0 upwards and hold a positive one, "
                f"got {table.text('times', default='')!r}."
            )
        escape = table.constant("escape", default=sp.S.Half)
        if not 0 < escape < 1:
            raise TaskError(f"solve.escape is {escape}; an overlap to reach lies between 0 and 1.")
        ratio = table.formula("learning_rate_ratio", {"L": sp.Integer(length)}, default="1")
        if isinstance(ratio, str | sp.MatrixBase) or not ratio.is_positive:
            raise TaskError(f"solve.learning_rate_ratio is {ratio}; a positive number or formula in L is needed.")
        critical = table.text("critical") if table.has("critical") else None
        noise = table.boolean("noise") if table.has("noise") else None
        return cls(times, escape, ratio, critical, noise)

    @classmethod
    def of_fixed_points(cls, table: Table) -> Self:
        """From the table [solve] of a family without flows, where only `samples` has a meaning."""
        return cls(samples=table.integer("samples", 2**10, 2**24, default=2**15))


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """Sizes, number of seeds, kind of simulation, and the chance to reject a correct theory.

    `optimiser`: by which a student is trained where there are several, None for the family's own choice.
    """

    dimensions: tuple[int, ...] = (100, 200, 400)
    seeds: int = 32
    method: Method = Method.DIRECT
    false_alarm: Fraction = Fraction(1, 10**6)
    optimiser: Optimiser | None = None

    @classmethod
    def read(cls, table: Table, *, methods: bool = True, optimisers: bool = False) -> Self:
        """From the table [verify]; methods, optimisers: whether there are several of these."""
        dimensions = table.integers("dimensions", 4, 10**9, default=(100, 200, 400))
        seeds = table.integer("seeds", 2, 100_000, default=32)
        words = tuple(m.value for m in Method)
        method = Method(table.choice("method", words, default=words[0])) if methods else Method.DIRECT
        chance = table.constant("false_alarm", default=sp.Rational(1, 10**6))
        if not (chance.is_Rational and 0 < chance < 1):
            raise TaskError(f"verify.false_alarm is {chance}; a rational between 0 and 1 is needed.")
        false_alarm = Fraction(int(chance.p), int(chance.q))
        chosen = optimisers and table.has("optimiser")
        optimiser = Optimiser(table.choice("optimiser", [o.value for o in Optimiser])) if chosen else None
        return cls(tuple(sorted(set(dimensions))), seeds, method, false_alarm, optimiser)
