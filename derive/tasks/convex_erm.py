"""Convex empirical risk minimisation on features that are Gaussian given a few latent variables, stated by the user.

Robust regression, Gaussian mixtures, logistic models: latents, features, label and loss are formulas of the task file.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import sympy as sp

from derive.document import Document, Table, TaskError
from derive.equations import EquationSystem, Quantity
from derive.erm import Erm
from derive.features import Case, FeatureLaw
from derive.mechanisms.convex_erm import ConvexErm, step_symbol
from derive.parse import FormulaError, check_parameter_name
from derive.settings import SolveSettings, VerifySettings
from derive.table import exact
from derive.task import Limit, TaskSpec
from derive.text import text

__all__ = ["ConvexErmTask", "Latent"]

RESERVED = (
    *("b", "rho", "r", "V", "mu", "w", "G", "sigma", "y", "u", "d", "n", "t", "m"),
    *("training_loss", "training_error", "test_loss", "test_error", "objective"),
)
_MOST_CASES = 4096
_MOST_DIRECTIONS = 16
_MOST_LOOKED_AT = 256


@dataclass(frozen=True)
class Latent:
    """A latent variable: `values` with `probabilities`, or N(mean, variance) where these are None."""

    symbol: sp.Symbol
    values: tuple[sp.Expr, ...] | None = None
    probabilities: tuple[sp.Expr, ...] | None = None
    mean: sp.Expr = sp.S.Zero
    variance: sp.Expr = sp.S.One


@dataclass(frozen=True)
class ConvexErmTask(TaskSpec):
    """Feature = sum_j exact_j e_j + sum_k mean_k e'_k + scale N(0, I_d), n = alpha d samples.

    mean, exact, scale: formulas in the latents. components: x1, x2, .., the feature along the directions of `mean`,
    noise included, which the label may read.
    """

    latents: tuple[Latent, ...]
    mean: tuple[sp.Expr, ...]
    exact: tuple[sp.Expr, ...]
    scale: sp.Expr
    components: tuple[sp.Symbol, ...]
    label: sp.Expr
    erm: Erm
    alpha: sp.Expr
    parameters: tuple[Quantity, ...]
    values: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    solve: SolveSettings = field(default_factory=SolveSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)

    SHORT_FORMS: ClassVar[Mapping[str, str]] = {"loss": "erm.loss", "ridge": "erm.ridge", "bias": "erm.bias"}

    # ---- what is derived ----------------------------------------------------------------------------------
    @cached_property
    def law(self) -> FeatureLaw:
        """The features given each value of the discrete latents; a direction that the label reads has its own noise."""
        read = [k for k, x in enumerate(self.components) if self.label.has_free(x)]
        cases = tuple(self._case(values, read) for values in itertools.product(*map(_outcomes, self.latents)))
        unread = [k for k in range(len(self.mean)) if k not in read]
        names = ["mu"] if len(self.mean) == 1 else [f"mu{k + 1}" for k in range(len(self.mean))]
        mu = [Quantity(sp.Symbol(n, real=True), f"weight along direction {k + 1}") for k, n in enumerate(names)]
        names = ["w"] if len(self.exact) == 1 else [f"w{j + 1}" for j in range(len(self.exact))]
        w = [Quantity(sp.Symbol(n, real=True), "weight along a direction without noise") for n in names]
        return FeatureLaw(cases, (*w, *(mu[k] for k in read)), tuple(mu[k] for k in unread))

    @cached_property
    def problem(self) -> ConvexErm:
        """The task as a problem of risk minimisation."""
        return ConvexErm.of(self.law, self.erm.loss, self.erm.ridge, self.erm.bias, self.alpha)

    def equations(self) -> EquationSystem:
        """Stationarity of the potential."""
        return self._known(self.problem.equations())

    @property
    def eased(self) -> tuple[EquationSystem, sp.Symbol] | None:
        eps = sp.Symbol("eps_ridge", nonnegative=True)
        return self._known(self.problem.eased(eps).equations(), Quantity(eps, "added to the ridge")), eps

    @property
    def limits(self) -> tuple[Limit, ...]:
        problem = self.problem.interpolating()
        if problem is None:
            return ()
        return (Limit(self._known(problem.equations()), self.erm.ridge, frozenset({step_symbol})),)

    def _known(self, system: EquationSystem, *more: Quantity) -> EquationSystem:
        return EquationSystem(system.equations, (*self.parameters, *more), system.start)

    def _case(self, values: tuple[tuple[sp.Expr, sp.Expr], ...], read: list[int]) -> Case:
        here: dict[sp.Symbol, sp.Expr] = {}
        normals: list[sp.Symbol] = []
        probability = sp.S.One
        for latent, (value, chance) in zip(self.latents, values, strict=True):
            if latent.values is None:
                normal = sp.Symbol(f"z_{latent.symbol.name}", real=True)
                normals.append(normal)
                here[latent.symbol] = latent.mean + sp.sqrt(latent.variance) * normal
            else:
                here[latent.symbol], probability = value, probability * chance
        mean, exact_ = ([f.xreplace(here) for f in formulas] for formulas in (self.mean, self.exact))
        scale = self.scale.xreplace(here)
        noisy = {k: sp.Symbol(f"z_{self.components[k].name}", real=True) for k in read}
        along = {self.components[k]: mean[k] + scale * z for k, z in noisy.items()}
        return Case(
            probability,
            (*normals, *noisy.values()),
            (*exact_, *along.values()),
            tuple(m for k, m in enumerate(mean) if k not in read),
            scale,
            self.label.xreplace(here).xreplace(along),
        )

    # ---- reading ------------------------------------------------------------------------------------------
    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The task that a document states; raises `TaskError` naming the key for what is not allowed."""
        parameters = document.parameters(RESERVED)
        names: dict[str, Any] = {q.symbol.name: q.symbol for q in parameters}
        latents = _latents(document.table("latent", required=False), names)
        inside = names | {v.symbol.name: v.symbol for v in latents}
        features = document.table("features", required=True)
        mean, exact_ = (_formulas(features, key, inside) for key in ("mean", "exact"))
        if not mean and not exact_:
            raise TaskError("features: no direction is stated; give mean = [...], or exact = [...] without noise.")
        scale = features.scalar("scale", inside, "1")
        components = tuple(sp.Symbol(f"x{k + 1}", real=True) for k in range(len(mean)))
        label = document.table("label", required=True).scalar("formula", inside | {x.name: x for x in components})
        training = document.table("erm", required=True)
        task = cls(
            latents=latents,
            mean=mean,
            exact=exact_,
            scale=scale,
            components=components,
            label=label,
            erm=Erm.read(training, names, document.values, binary=False),
            alpha=_alpha(training, names),
            parameters=parameters,
            values=document.values,
            solve=SolveSettings.of_fixed_points(document.table("solve", required=False)),
            verify=VerifySettings.read(document.table("verify", required=False), methods=False),
        )
        document.finish()
        _check_values(task)
        return task


def _check_values(task: ConvexErmTask) -> None:
    """Raises `TaskError` where a formula is not real and finite, or the scale not positive, for some latents.

    Likewise where all labels are the same. Discrete latents take all their values, in the first 256 of their cases;
    normal ones a few; the label's x1, .. one.
    """
    if not task.label.has_free(*task.components, *(v.symbol for v in task.latents)):
        raise TaskError(
            f"label.formula is {text(task.label)}, the same for all samples: there is nothing to learn. Let it read a "
            "latent variable, or x1, x2, .. the feature along the directions of features.mean."
        )
    stated = [("features.mean", f) for f in task.mean] + [("features.exact", f) for f in task.exact]
    stated += [("features.scale", task.scale), ("label.formula", task.label)]
    choices = [(v.symbol, _looked_at(v)) for v in task.latents]
    for values in itertools.islice(itertools.product(*(c for _, c in choices)), _MOST_LOOKED_AT):
        here = {s: v for (s, _), v in zip(choices, values, strict=True)}
        at = {**dict(task.values), **dict.fromkeys(task.components, sp.Rational(1, 3)), **here}
        for place, formula in stated:
            _check_poles(task, place, formula, at)
            found = sp.N(formula.xreplace(at))
            if not found.is_number:
                continue
            where = ", ".join(f"{s} = {v}" for s, v in here.items() if formula.has_free(s))
            told = f"{place}: {text(formula)} is {found}{f' at {where}' if where else ''}"
            if not (found.is_real and found.is_finite):
                raise TaskError(f"{told}; it must be a real number whatever the latents are.")
            if place == "features.scale" and not found > 0:
                raise TaskError(
                    f"{told}; the scale of the noise must be positive. A direction without noise is stated by exact."
                )


def _check_poles(task: ConvexErmTask, place: str, formula: sp.Expr, at: Mapping[sp.Symbol, sp.Expr]) -> None:
    """Raises `TaskError` where a denominator vanishes for some value of a normal variable, seen by its signs."""
    normal = (*task.components, *(v.symbol for v in task.latents if v.values is None))
    powers = [p for p in formula.atoms(sp.Pow) if p.exp.is_negative and p.base.has_free(*normal)]
    for base, x in itertools.product((p.base for p in powers), normal):
        others = base.xreplace({s: v for s, v in at.items() if s != x})
        signs = {sp.sign(sp.N(others.xreplace({x: sp.Rational(k, 2)}))) for k in range(-8, 9)}
        if others.free_symbols == {x} and (sp.S.Zero in signs or len(signs) > 1):
            raise TaskError(
                f"{place}: {text(formula)} has a pole where {text(base)} = 0, which {x} reaches: its averages do not "
                "exist. Write a formula that is bounded there."
            )


def _looked_at(latent: Latent) -> tuple[sp.Expr, ...]:
    if latent.values is not None:
        return latent.values
    return tuple(latent.mean + k * sp.sqrt(latent.variance) for k in (-2, sp.Rational(-1, 2), 1, 3))


def _outcomes(latent: Latent) -> list[tuple[sp.Expr, sp.Expr]]:
    """(value, probability), one pair of no meaning for a normal variable."""
    if latent.values is None or latent.probabilities is None:
        return [(sp.S.Zero, sp.S.One)]
    return list(zip(latent.values, latent.probabilities, strict=True))


def _alpha(training: Table, names: Mapping[str, Any]) -> sp.Expr:
    if "alpha" not in names and not training.has("alpha"):
        raise TaskError(
            "parameters.alpha is missing: the number of samples over the dimension. Declare "
            'alpha = { domain = "(0,inf)" }.'
        )
    alpha = training.scalar("alpha", names, "alpha")
    if alpha.is_positive is False:
        raise TaskError(f"erm.alpha is {alpha}; it must be positive.")
    return alpha


def _formulas(table: Table, key: str, names: Mapping[str, Any]) -> tuple[sp.Expr, ...]:
    column = table.matrix(key, names, default=None)
    if column is None:
        return ()
    if column.cols != 1 or column.rows > _MOST_DIRECTIONS:
        raise TaskError(f"{table.name}.{key}: a list of at most {_MOST_DIRECTIONS} formulas, one for each direction.")
    return tuple(column)


def _latents(table: Table, names: Mapping[str, Any]) -> tuple[Latent, ...]:
    found = tuple(_latent(table, key, names) for key in table.keys())  # noqa: SIM118
    cases = 1
    for latent in found:
        cases *= len(latent.values or (0,))
    if cases > _MOST_CASES:
        raise TaskError(
            f"latent: the discrete variables have {cases} values together; at most {_MOST_CASES} are allowed."
        )
    return found


def _latent(table: Table, key: str, names: Mapping[str, Any]) -> Latent:
    entry = table.mapping(key)
    place = f"latent.{key}"
    try:
        check_parameter_name(key, (*RESERVED, *names))
    except FormulaError as error:
        raise TaskError(f"{place}: {error}") from None
    symbol = sp.Symbol(key, real=True)
    if set(entry) == {"normal"}:
        mean, variance = _numbers(entry["normal"], place, 2)
        if not variance.is_nonnegative:
            raise TaskError(f"{place}: the variance is {variance}; it must not be negative.")
        return Latent(symbol, mean=mean, variance=variance)
    if set(entry) == {"values", "probabilities"}:
        values = _numbers(entry["values"], place, None)
        probabilities = _numbers(entry["probabilities"], place, len(values))
        total = sp.Add(*probabilities)
        if any(not p.is_nonnegative for p in probabilities) or sp.expand(total - 1) != 0:
            raise TaskError(f"{place}: the probabilities {list(probabilities)} must not be negative and must sum to 1.")
        return Latent(symbol, values, probabilities)
    raise TaskError(
        f"{place}: state {{ values = [..], probabilities = [..] }} or {{ normal = [mean, variance] }}, got "
        f"{', '.join(entry) or 'nothing'}."
    )


def _numbers(value: Any, place: str, length: int | None) -> tuple[sp.Expr, ...]:
    if not isinstance(value, list) or not value or (length is not None and len(value) != length):
        expected = "a list of numbers" if length is None else f"a list of {length} numbers"
        raise TaskError(f"{place}: {expected} is needed, got {value!r:.60}.")
    return tuple(exact(v, place) for v in value)


FAMILY = ConvexErmTask
