"""The law of features that are Gaussian given finitely many latent cases and a few normal variables."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from derive.equations import Quantity
from derive.expectation import Expectation
from derive.measures import Pushforward, standard_normal

__all__ = ["Case", "FeatureLaw"]

_MOST_NORMALS = 2
"""Normal variables up to which an average is an integral over them; above, over the law of what is made of them."""


@dataclass(frozen=True)
class Case:
    """One value of the discrete latent variables, of that probability.

    normals: independent N(0, 1) variables, in which the rest are formulas. exact: the components of the feature along
    directions without noise; mean: those along directions with the noise of all others, of standard deviation `scale`.
    definitions: (symbol, formula), one after the other, of symbols that the formulas share.
    """

    probability: sp.Expr
    normals: tuple[sp.Symbol, ...]
    exact: tuple[sp.Expr, ...]
    mean: tuple[sp.Expr, ...]
    scale: sp.Expr
    label: sp.Expr
    definitions: tuple[tuple[sp.Symbol, sp.Expr], ...] = ()

    def varies(self, formula: sp.Expr) -> bool:
        """Whether a formula of this case reads normal variables."""
        return bool(formula.has_free(*self.normals, *(s for s, _ in self.definitions)))


@dataclass(frozen=True)
class FeatureLaw:
    """Feature = sum_j exact_j e_j + sum_k mean_k e'_k + scale N(0, I), the e and e' orthonormal, no noise along the e.

    exact_weights, mean_weights: the student's weights along the e and the e'.
    Raises `ValueError` where a case does not have a component for each of them.
    """

    cases: tuple[Case, ...]
    exact_weights: tuple[Quantity, ...]
    mean_weights: tuple[Quantity, ...]

    def __post_init__(self) -> None:
        for case in self.cases:
            if (len(case.exact), len(case.mean)) != (len(self.exact_weights), len(self.mean_weights)):
                raise ValueError(
                    f"FeatureLaw: a case has {len(case.exact)} exact and {len(case.mean)} mean components for "
                    f"{len(self.exact_weights)} and {len(self.mean_weights)} weights."
                )

    @property
    def labels(self) -> frozenset[sp.Expr]:
        """The labels of the cases."""
        return frozenset(c.label for c in self.cases)

    @property
    def is_binary(self) -> bool:
        """Whether all labels are +1 or -1."""
        return self.labels <= {sp.S.One, sp.S.NegativeOne}


def average(
    case: Case, integrand: sp.Expr, formulas: dict[sp.Symbol, sp.Expr], extra: tuple[sp.Symbol, ...]
) -> sp.Expr:
    """E[integrand] over the normals of a case and `extra` independent N(0, 1) variables.

    formulas: what the symbols of the integrand stand for in this case. Few variables are integrated over as they are;
    else the integrand stays a function of its symbols, under their law.
    """
    read = {s: f for s, f in formulas.items() if integrand.has_free(s)}
    varying = {s: f for s, f in read.items() if case.varies(f)}
    integrand = integrand.xreplace({s: f for s, f in read.items() if s not in varying})
    more = tuple(v for v in extra if integrand.has_free(v))
    if not varying:
        return Expectation(integrand, more, standard_normal(len(more)))
    inputs = (*case.normals, *more)
    if len(case.normals) <= _MOST_NORMALS:
        for s, f in reversed((*case.definitions, *varying.items())):
            integrand = integrand.xreplace({s: f})
        return Expectation(integrand, inputs, standard_normal(len(inputs)))
    outputs = (*varying, *more)
    law = Pushforward(standard_normal(len(inputs)), inputs, (*case.definitions, *varying.items()), outputs)
    return Expectation(integrand, outputs, law)
