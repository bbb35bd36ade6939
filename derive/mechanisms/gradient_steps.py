"""A few gradient steps of vectors in R^d on n = alpha d samples, fresh or used again, as d goes to infinity.

A sample is X = signal xi^T + Z in R^(L x d), Z of independent N(0, 1) entries. The gradient of a vector w is
g = (1/n) sum_i X_i^T r_i with the response r = d loss / d (X w). Forward in time, without a fixed point: along a
direction e that exists already its coordinate is E[r . X e] / |e|^2, where X e holds what the samples themselves put
into e; the rest is a new direction, isotropic noise, orthogonal to all others and of square |e|^2 = E|rho|^2 / alpha,
where rho is the response without its projection on the rho of earlier noises of the same data. To this direction a
sample contributes rho: X e = <xi, e> signal + x_e + rho / alpha. By Stein's lemma this is the expansion in
divergences of responses with a memory kernel; no derivative of r is taken, so responses may jump.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp

from derive.equations import Define
from derive.mechanisms.large_parameter import LargeParameter
from derive.mechanisms.responses import Model, Vector
from derive.mechanisms.sample_law import SIGNAL, Case, State
from derive.mechanisms.trace import Trace, trace
from derive.mechanisms.training import Data, Start, Step, Update, descend, rare_signal

__all__ = ["Case", "Data", "GradientSteps", "Start", "Step", "Update", "Vector", "descend", "rare_signal"]


@dataclass(frozen=True)
class GradientSteps:
    """Training of `vectors` and `biases` through `output`, with `loss` a Lambda of (label, output).

    vectors: their fields (X w)_1 .. (X w)_L are the symbols that the output reads; zero at first unless in `start`.
    biases: scalars of the output with their initial values. cases: the law of label and signal; with `exchangeable`
    each case stands for all orders of its tokens. `responses`: see `Model`.
    Raises `ValueError` for what does not fit together.
    """

    vectors: tuple[Vector, ...]
    output: sp.Expr
    loss: sp.Lambda
    cases: tuple[Case, ...]
    steps: tuple[Step, ...]
    biases: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    start: Start = field(default_factory=Start)
    exchangeable: bool = True
    responses: Mapping[sp.Symbol, tuple[sp.Expr, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        length = self.model.length
        if any(len(v.fields) != length for v in self.vectors) or any(len(c.signal) != length for c in self.cases):
            raise ValueError(f"GradientSteps: all vectors need {length} fields and all cases {length} signals.")
        vectors = {v.symbol for v in self.vectors}
        if not set(self.start.vectors) <= vectors:
            raise ValueError(f"GradientSteps: a start is given for {self.start.vectors}; the vectors are {vectors}.")
        for step in self.steps:
            for symbol, update in step.updates.items():
                kind = vectors if symbol in vectors else set(self.biases)
                strange = ({symbol} | update.keep.keys() | update.gradients.keys()) - kind
                if strange:
                    raise ValueError(
                        f"GradientSteps: the update of {symbol} reads {', '.join(sorted(map(str, strange)))}. Vectors "
                        f"are made of vectors ({', '.join(map(str, vectors))}), biases of biases."
                    )

    @property
    def model(self) -> Model:
        return Model(self.vectors, self.output, self.loss, self.responses)

    # ---- results ------------------------------------------------------------------------------------------
    def equations(self) -> tuple[Define, ...]:
        """Definitions of all coordinates, noises and biases, in the order in which they can be evaluated."""
        return self._trace.equations

    def bias(self, symbol: sp.Symbol, time: int = -1) -> sp.Expr:
        """The bias after `time` steps; the last by default."""
        return self._trace.biases[time][symbol]

    def overlap(self, vector: sp.Symbol, time: int = -1) -> sp.Expr:
        """<w, xi> after `time` steps."""
        return self._state(vector, time).along(SIGNAL)

    def inner(self, one: sp.Symbol, other: sp.Symbol, time: int = -1, other_time: int | None = None) -> sp.Expr:
        """<v, w>, the vectors taken after `time` and `other_time` steps (by default the same)."""
        return self._state(one, time).inner(self._state(other, time if other_time is None else other_time))

    def norm(self, vector: sp.Symbol, time: int = -1) -> sp.Expr:
        """|w| after `time` steps."""
        return sp.sqrt(self._state(vector, time).square)

    def cosine(self, vector: sp.Symbol, time: int = -1) -> sp.Expr:
        """<w, xi> / |w|, signed. Raises `ValueError` where w = 0."""
        norm = self.norm(vector, time)
        if norm == 0:
            raise ValueError(f"{vector} is zero after these steps, so it has no direction: no step moves it.")
        return self.overlap(vector, time) / norm

    def alignment_constant(self, vector: sp.Symbol, parameter: sp.Symbol, time: int = -1) -> sp.Expr:
        """C in |cosine| = 1 - C/parameter + o(1/parameter), `parameter` a ratio of samples that goes to infinity.

        |cosine| = (1 + T)^(-1/2) with T = (|w|^2 - <w, xi>^2) / <w, xi>^2. Raises `ValueError` where w does not align.
        """
        overlap = self.overlap(vector, time)
        if overlap == 0:
            raise ValueError(f"{vector} has no overlap with xi after these steps, so it does not align.")
        rest = State.of({e: a for e, a in self._state(vector, time).coordinates if e != SIGNAL})
        misalignment = sp.Add(*(term / overlap**2 for term in sp.Add.make_args(rest.square)))
        expansion = LargeParameter(self.equations(), parameter)
        if expansion.limit(misalignment) != 0:
            raise ValueError(f"{vector} does not align with xi as {parameter} goes to infinity; there is no C.")
        t = sp.Dummy("T", positive=True)
        return -sp.diff(1 / sp.sqrt(1 + t), t).subs(t, 0) * expansion.correction(misalignment)

    def _state(self, vector: sp.Symbol, time: int) -> State:
        return self._trace.states[time][vector]

    @cached_property
    def _trace(self) -> Trace:
        return trace(self.model, self.cases, self.steps, self.biases, self.start, self.exchangeable)
