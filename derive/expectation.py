"""The unevaluated expectation under a law: canonical bound names, and its derivative (Bonnet, Price)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

import sympy as sp

from derive.gaussian import terms
from derive.measures import Gaussian, Measure
from derive.scope import Scope, fresh_names

__all__ = ["Expectation", "expectations"]


class Expectation(Scope):
    """E_{variables ~ measure}[integrand]; equal up to the names of bound variables; never evaluates itself.

    Variables that the integrand does not use are dropped (the law becomes the marginal); an integrand free of
    all of them is returned as it is. Expectations that are equal up to bound names are equal and hash alike:

    >>> x, y = sp.symbols("x y", real=True)
    >>> Expectation(sp.tanh(x) ** 2, [x], Gaussian([0], [[1]])) == Expectation(
    ...     sp.tanh(y) ** 2, [x, y], Gaussian([0, 0], [[2, 0], [0, 1]])
    ... )
    True
    """

    is_commutative = True

    def __new__(cls, integrand: sp.Expr, variables: Sequence[sp.Symbol], measure: Measure) -> Self | sp.Expr:
        integrand = sp.S(integrand)
        variables = tuple(variables)
        if len(variables) != measure.dim:
            raise ValueError(f"Expectation: {len(variables)} variables for a law on R^{measure.dim}.")
        used = [i for i, v in enumerate(variables) if integrand.has_free(v)]
        if not used:
            return integrand
        if len(used) < len(variables):
            measure = measure.marginal(used)
            variables = tuple(variables[i] for i in used)
        free = (integrand.free_symbols | measure.free_symbols) - set(variables)
        names = fresh_names([integrand], free, len(used))
        if names != variables:
            integrand = integrand.xreplace(dict(zip(variables, names, strict=True)))
        return super().__new__(cls, integrand, sp.Tuple(*names), measure)

    @property
    def integrand(self) -> sp.Expr:
        return self.args[0]

    @property
    def variables(self) -> sp.Tuple:
        return self.args[1]

    @property
    def measure(self) -> Measure:
        law: Measure = self.args[2]
        return law

    @property
    def bound_symbols(self) -> list[sp.Symbol]:
        return list(self.variables)

    @property
    def free_symbols(self) -> set[sp.Basic]:
        return set(_free_symbols(self))

    def has_free(self, *symbols: sp.Basic) -> bool:
        return not self.free_symbols.isdisjoint(symbols)

    def _eval_subs(self, old: sp.Basic, new: sp.Basic) -> sp.Expr | None:
        if old in self.variables:
            return self
        if new.free_symbols.isdisjoint(self.variables):
            return None
        # `new` holds a name that is bound here: move the bound variables out of its way first
        fresh = [sp.Dummy(real=True) for _ in self.variables]
        integrand = self.integrand.xreplace(dict(zip(self.variables, fresh, strict=True)))
        return Expectation(integrand.subs(old, new), fresh, self.measure.subs(old, new))

    def _eval_is_real(self) -> bool | None:
        return bool(self.integrand.is_real) or None

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        """d/ds E F = E dF/ds and what the law changes with s."""
        law = self.measure
        f, x = self.integrand, self.variables
        if f.has(sp.Heaviside, sp.sign):
            # 1[x > 0]^n = 1[x > 0] before it is differentiated: a point mass times a jump has no meaning
            f = sp.Add(*(t.expr for t in terms(f, tuple(x))))
        return sp.Add(*(Expectation(t, x, law) for t in law.derivative(f, tuple(x), s) if t != 0))

    def _sympystr(self, printer: Any) -> str:
        body = ", ".join(printer._print(a) for a in (self.integrand, list(self.variables)))
        law = self.measure
        if isinstance(law, Gaussian):
            return f"Expectation({body}, {printer._print(list(law.mean))}, {law.cov.tolist()})"
        return f"Expectation({body}, {printer._print(law)})"


@lru_cache(maxsize=16384)
def _free_symbols(e: Expectation) -> frozenset[sp.Basic]:
    inside: set[sp.Basic] = e.integrand.free_symbols - set(e.variables)
    return frozenset(inside | e.measure.free_symbols)


def expectations(expr: sp.Basic) -> set[Expectation]:
    """The expectations that stand in `expr`, outermost only."""
    if isinstance(expr, Expectation):
        return {expr}
    return set().union(*(expectations(a) for a in expr.args)) if expr.args else set()
