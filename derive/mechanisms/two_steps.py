"""The query of an attention classifier after two gradient steps from zero: its overlap, norm, cosine with the signal.

First w and b, then q, by the general theory of `derive.mechanisms.gradient_steps`; C = lim alpha0 (1 - |s_q|) by
expansion in 1/alpha0  [arXiv:2509.25153, Theorem 3 and Corollary 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from derive.equations import Define, Equation, Quantity, Source
from derive.functions import SoftmaxEntry
from derive.mechanisms.gradient_steps import Data, GradientSteps, Step, Vector, descend, rare_signal
from derive.mechanisms.token_features import SparseSequence

__all__ = ["QuerySteps", "cosine_symbol", "norm_symbol", "sharpness_symbol"]

cosine_symbol = sp.Symbol("s_q", real=True)
norm_symbol = sp.Symbol("norm_q", nonnegative=True)
sharpness_symbol = sp.Symbol("kappa", nonnegative=True)
_overlap = sp.Symbol("overlap_q", real=True)
_constant = sp.Symbol("C", real=True)
_w, _q, _b = (sp.Symbol(name, real=True) for name in ("w", "q", "b"))
PAPER = "arXiv:2509.25153"


@dataclass(frozen=True)
class QuerySteps:
    """Two steps from zero on n0 = alpha0 d samples: eta_w, eta_b for w and b, then eta_q for q; reuse: of the data."""

    alpha0: sp.Expr
    reuse: bool
    eta_w: sp.Expr
    eta_b: sp.Expr
    eta_q: sp.Expr
    loss: sp.Lambda

    def equations(self, data: SparseSequence, beta: sp.Expr) -> tuple[Equation, ...]:
        """The steps' own quantities, then overlap_q, norm_q, s_q and C."""
        steps = self._steps(data, beta, self.alpha0)
        unit = sp.Interval(-1, 1)
        theorem = Source(PAPER, "Theorem 3; derived step by step")
        found = [
            (Quantity(_overlap, "overlap of the query with the signal"), steps.overlap(_q)),
            (Quantity(norm_symbol, "norm of the query", sp.Interval(0, sp.oo)), steps.norm(_q)),
            (Quantity(cosine_symbol, "cosine of the query with the signal", unit), _overlap / norm_symbol),
        ]
        equations: list[Equation] = [*steps.equations(), *(Define(q, rhs, theorem) for q, rhs in found)]
        constant = self._constant(data, beta)
        if constant is not None:
            corollary = Source(PAPER, "Corollary 1; derived by expansion in 1/alpha0")
            meaning = "limit of alpha0 (1 - |s_q|) for many samples"
            equations.append(Define(Quantity(_constant, meaning, sp.Interval(0, sp.oo)), constant, corollary))
        return tuple(equations)

    def _constant(self, data: SparseSequence, beta: sp.Expr) -> sp.Expr | None:
        """lim alpha0 (1 - |s_q|); None where the query does not align."""
        ratio = sp.Symbol("alpha0", positive=True)
        steps = self._steps(data, beta, ratio)
        try:
            return steps.alignment_constant(_q, ratio)
        except ValueError:
            return None

    def _steps(self, data: SparseSequence, beta: sp.Expr, ratio: sp.Expr) -> GradientSteps:
        of_w, of_q = (sp.symbols(f"{name}1:{data.length + 1}", real=True) for name in ("h_w", "h_q"))
        scaled = [beta * h for h in of_q]
        softmax = [SoftmaxEntry(a, *scaled[:i], *scaled[i + 1 :]) for i, a in enumerate(scaled)]
        first = Data("D0", ratio)
        second = first if self.reuse else Data("D1", ratio)
        return GradientSteps(
            vectors=(Vector(_w, of_w), Vector(_q, of_q)),
            output=sp.Add(*(p * h for p, h in zip(softmax, of_w, strict=True))) + _b,
            loss=self.loss,
            cases=rare_signal(data.pi, data.theta, data.length, data.signals),
            steps=(
                Step(first, {_w: descend(_w, self.eta_w), _b: descend(_b, self.eta_b)}),
                Step(second, {_q: descend(_q, self.eta_q)}),
            ),
            biases={_b: sp.S.Zero},
        )
