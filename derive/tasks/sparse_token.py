"""Sparse-token classification: which of two kinds a sequence is, by R signal tokens among L.

X = theta v xi^T + Z with independent N(0, 1) noise, v the indicator of R of L positions, for the label +1 of
probability pi; X = Z for -1. Students: attention X^T softmax(beta X q), pooled X^T 1/L, vectorised vec(X), each with a
convex loss of <feature, w> + b  [arXiv:2509.25153].
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import sympy as sp

from derive.document import Document, Table, TaskError
from derive.equations import Define, Equation, EquationSystem, Quantity, Source
from derive.erm import Erm, read_convex_loss
from derive.features import FeatureLaw
from derive.mechanisms.capacity import capacity_system
from derive.mechanisms.convex_erm import ConvexErm, step_symbol
from derive.mechanisms.oracle import ORACLE_NAMES, Tokens, oracle_system
from derive.mechanisms.token_features import SparseSequence, attended, pooled, vectorised
from derive.mechanisms.two_steps import QuerySteps, cosine_symbol, norm_symbol, sharpness_symbol
from derive.settings import SolveSettings, VerifySettings
from derive.task import Limit, TaskSpec
from derive.text import text

__all__ = ["Architecture", "Goal", "SparseToken"]

PAPER = "arXiv:2509.25153"
RESERVED = (
    *("b", "rho", "r", "V", "mu", "w", "w_q", "G", "sigma", "y", "u", "d", "n", "t", "m", "x", "C", "misfit"),
    *("training_loss", "training_error", "test_loss", "test_error", "objective", "overlap_q", "norm_q", "capacity"),
    *ORACLE_NAMES,
)
_MOST_TOKENS = 10_000
_MOST_ATTENDED = 64


class Architecture(enum.Enum):
    """What the classifier reads of a sequence."""

    ATTENTION = "attention"
    POOLED = "pooled"
    VECTORISED = "vectorised"


class Goal(enum.Enum):
    """What is asked: the query's alignment after the steps, the trained classifier, its capacity, the best errors."""

    ALIGNMENT = "steps"
    ERM = "erm"
    CAPACITY = "capacity"
    ORACLE = "oracle"


@dataclass(frozen=True)
class SparseToken(TaskSpec):
    """data: the law of the sequences. kind, beta: the student. goal: what is asked.

    query: (s_q, kappa), the cosine of the query with xi and beta |q|; else `steps` lead to it. alpha1: n1/d.
    oracle: (gamma, b) of attention's score where the best errors are asked for, None for the best of them.
    """

    data: SparseSequence
    kind: Architecture
    goal: Goal
    beta: sp.Expr
    query: tuple[sp.Expr, sp.Expr] | None
    steps: QuerySteps | None
    erm: Erm | None
    oracle: tuple[sp.Expr | None, sp.Expr | None] | None
    alpha1: sp.Expr
    parameters: tuple[Quantity, ...]
    values: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    solve: SolveSettings = field(default_factory=SolveSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)

    SHORT_FORMS: ClassVar[Mapping[str, str]] = {
        **{name: f"data.{name}" for name in ("L", "R", "theta", "pi", "positions")},
        **{name: f"steps.{name}" for name in ("alpha0", "reuse", "eta_w", "eta_b", "eta_q")},
        **{name: f"query.{name}" for name in ("s_q", "kappa")},
        **{"model": "student.kind", "beta": "student.beta", "loss": "erm.loss", "ridge": "erm.ridge"},
        **{"bias": "erm.bias", "alpha1": "erm.alpha1"},
    }

    @classmethod
    def short_forms(cls, document: Document) -> Mapping[str, str]:
        """The loss is that of the steps where there is no other."""
        return cls.SHORT_FORMS if "erm" in document.data else {**cls.SHORT_FORMS, "loss": "steps.loss"}

    @property
    def dimension_ratio(self) -> int:
        """The dimension of the features over d."""
        return self.data.length if self.kind is Architecture.VECTORISED else 1

    @property
    def has_steps(self) -> bool:
        """Whether the query is what the steps make of it."""
        return self.kind is Architecture.ATTENTION and self.query is None

    # ---- what is derived ----------------------------------------------------------------------------------
    @cached_property
    def law(self) -> FeatureLaw:
        """The law of the classifier's features."""
        if self.kind is Architecture.POOLED:
            return pooled(self.data)
        if self.kind is Architecture.VECTORISED:
            return vectorised(self.data)
        return attended(self.data, *(self.query or (cosine_symbol, sharpness_symbol)))

    @property
    def tokens(self) -> Tokens:
        """The data as the oracle reads them."""
        data = self.data
        return Tokens(data.theta, data.pi, sp.Integer(data.length), sp.Integer(data.signals), data.positions or ())

    @cached_property
    def problem(self) -> ConvexErm:
        """Training as a problem of risk minimisation; of a capacity, which has no loss, its features."""
        y, u = sp.symbols("y u", real=True)
        erm = self.erm or Erm(sp.Lambda((y, u), u), sp.S.Zero, True)
        return ConvexErm.of(self.law, erm.loss, erm.ridge, erm.bias, self.alpha1 / self.dimension_ratio)

    def equations(self) -> EquationSystem:
        """The system of what is asked."""
        if self.goal is Goal.ALIGNMENT:
            return self._after_steps(None)
        if self.goal is Goal.CAPACITY:
            return self._after_steps(capacity_system(self.problem, sp.Integer(self.dimension_ratio)))
        if self.goal is Goal.ORACLE:
            return oracle_system(self.tokens, self.parameters, *(self.oracle or (None, None)))
        return self._after_steps(self.problem.equations())

    @property
    def eased(self) -> tuple[EquationSystem, sp.Symbol] | None:
        if self.erm is None:
            return None
        eps = sp.Symbol("eps_ridge", nonnegative=True)
        return self._after_steps(self.problem.eased(eps).equations(), Quantity(eps, "added to the ridge")), eps

    @property
    def limits(self) -> tuple[Limit, ...]:
        problem = None if self.erm is None else self.problem.interpolating()
        if problem is None or self.erm is None:
            return ()
        return (Limit(self._after_steps(problem.equations()), self.erm.ridge, frozenset({step_symbol})),)

    def _after_steps(self, system: EquationSystem | None, *more: Quantity) -> EquationSystem:
        """The system behind the equations of the steps that lead to its query."""
        before = self._alignment() if self.has_steps else ()
        equations = before if system is None else (*before, *system.equations)
        return EquationSystem(equations, (*self.parameters, *more), {} if system is None else system.start)

    def _alignment(self) -> tuple[Equation, ...]:
        assert self.steps is not None
        theta = self.data.theta
        # without a signal the query does not align, and there is no constant that says how fast
        data = replace(self.data, theta=sp.S.Zero) if theta.xreplace(dict(self.values)).is_zero else self.data
        found = self.steps.equations(data, self.beta)
        if self.goal is Goal.ALIGNMENT:
            return found
        sharpness = Quantity(sharpness_symbol, "inverse temperature times the norm of the query", sp.Interval(0, sp.oo))
        return (*found, Define(sharpness, self.beta * norm_symbol, Source("derived", "definition")))

    # ---- reading ------------------------------------------------------------------------------------------
    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The task that a document states; raises `TaskError` naming the key for what is not allowed."""
        parameters = document.parameters(RESERVED)
        names: dict[str, Any] = {q.symbol.name: q.symbol for q in parameters}
        values = document.values
        goal = _goal(document)
        student = document.table("student", required=goal is not Goal.ORACLE)
        kind = Architecture(
            student.choice("kind", tuple(a.value for a in Architecture), default=Architecture.ATTENTION.value)
        )
        data = _data(document.table("data", required=True), names, values, kind, goal)
        # a query is read for the other students, too: one file serves all of them
        query = _query(document.table("query"), names, values) if "query" in document.data else None
        if query is not None and "steps" in document.data:
            raise TaskError(
                "steps: [query] states the query already, and steps would train another. Leave [query] out and keep "
                "[steps], as the example sparse-token-protocol does, or drop what sets steps.* (alpha0, reuse, eta_w, "
                "eta_b, eta_q)."
            )
        by_steps = kind is Architecture.ATTENTION and goal is not Goal.ORACLE and query is None
        by_steps = by_steps or ("steps" in document.data and query is None)
        training = document.table("erm", required=goal is Goal.ERM) if goal is Goal.ERM else None
        erm = None if training is None else Erm.read(training, names, values, binary=True)
        alpha1 = sp.S.One if training is None else _positive(training, "alpha1", names, values, "alpha1")
        steps = _steps(document.table("steps"), names, values, erm) if by_steps else None
        if steps is not None and data.length == 1:
            raise TaskError(
                "data.L is 1: the softmax of one token is 1 whatever the query is, so that steps leave it at zero, "
                "without a direction. Give two tokens or more, or state [query]."
            )
        task = cls(
            data=data,
            kind=kind,
            goal=goal,
            beta=_positive(student, "beta", names, values, "1") if by_steps else sp.S.One,
            query=query,
            steps=steps,
            erm=erm,
            oracle=_oracle(document.table("oracle"), names, values) if goal is Goal.ORACLE else None,
            alpha1=alpha1,
            parameters=parameters,
            values=values,
            solve=SolveSettings.of_fixed_points(document.table("solve", required=False)),
            verify=VerifySettings.read(document.table("verify", required=False), methods=False),
        )
        document.finish()
        return task


def _goal(document: Document) -> Goal:
    """What the tables ask for; [steps] alone asks for the alignment."""
    asked = [g for g in (Goal.ERM, Goal.CAPACITY, Goal.ORACLE) if g.value in document.data]
    if len(asked) > 1:
        raise TaskError(f"[{asked[0].value}] and [{asked[1].value}] ask for two things; keep one of the tables.")
    goal = asked[0] if asked else Goal.ALIGNMENT
    document.table(goal.value, required=goal is Goal.ALIGNMENT)
    return goal


def _data(
    table: Table, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr], kind: Architecture, goal: Goal
) -> SparseSequence:
    attends = kind is Architecture.ATTENTION and goal in (Goal.ERM, Goal.CAPACITY)
    length = table.integer("L", 1, _MOST_ATTENDED if attends else _MOST_TOKENS)
    signals = table.integer("R", 1, _MOST_TOKENS, default=1)
    if signals > length:
        raise TaskError(f"data.R is {signals}, more than the {length} tokens of data.L. R of the L tokens are signals.")
    pi = _number(table, "pi", names, values, "1/2")
    if _known(pi, values) and not 0 < pi.xreplace(dict(values)) < 1:
        raise TaskError(
            f"data.pi is {text(pi.xreplace(dict(values)))}; the probability of the label +1 lies strictly between 0 "
            "and 1: with one label there is nothing to classify."
        )
    return SparseSequence(length, signals, _number(table, "theta", names, values, None), pi, _positions(table, length))


def _positions(table: Table, length: int) -> tuple[sp.Expr, ...] | None:
    if table.raw("positions", default="uniform") == "uniform":
        return None
    weights = table.constants("positions")
    if len(weights) != length or any(not w.is_nonnegative for w in weights) or not any(w != 0 for w in weights):
        raise TaskError(f'data.positions: "uniform", or a list of {length} weights, none of them negative.')
    return weights


def _query(table: Table, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr]) -> tuple[sp.Expr, sp.Expr]:
    cosine, sharpness = (_number(table, key, names, values, None) for key in ("s_q", "kappa"))
    if _known(cosine, values) and not -1 <= cosine.xreplace(dict(values)) <= 1:
        raise TaskError(f"query.s_q is {text(cosine)}; a cosine lies between -1 and 1.")
    if _known(sharpness, values) and not sharpness.xreplace(dict(values)) >= 0:
        raise TaskError(f"query.kappa is {text(sharpness)}; beta |q| must not be negative.")
    return cosine, sharpness


def _steps(table: Table, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr], erm: Erm | None) -> QuerySteps:
    loss = erm.loss if erm is not None and not table.has("loss") else None
    for key in ("eta_w", "eta_q"):
        if _number(table, key, names, values, "1").xreplace(dict(values)).is_zero:
            raise TaskError(f"steps.{key} is 0: the query stays at zero and has no direction. Give another step size.")
    return QuerySteps(
        alpha0=_positive(table, "alpha0", names, values, "alpha0"),
        reuse=table.boolean("reuse", default=True),
        eta_w=_number(table, "eta_w", names, values, "1"),
        eta_b=_number(table, "eta_b", names, values, "1"),
        eta_q=_number(table, "eta_q", names, values, "1"),
        loss=loss or read_convex_loss(table, "loss", names, values, binary=True),
    )


def _oracle(
    table: Table, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr]
) -> tuple[sp.Expr | None, sp.Expr | None]:
    gamma = _positive(table, "gamma", names, values, None) if table.has("gamma") else None
    return gamma, _number(table, "b", names, values, None) if table.has("b") else None


def _known(expr: sp.Expr, values: Mapping[sp.Symbol, sp.Expr]) -> bool:
    return bool(expr.xreplace(dict(values)).is_number)


def _number(
    table: Table, key: str, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr], default: str | None
) -> sp.Expr:
    """A number or a formula in the parameters; required without a default."""
    if default is not None and default in names and not table.has(key):
        return names[default]
    known = default if default is None or _is_number(default) else None
    expr = table.scalar(key, names) if known is None else table.scalar(key, names, known)
    if not expr.xreplace(dict(values)).is_real:
        raise TaskError(f"{table.name}.{key} is {text(expr)}; it must be real.")
    return expr


def _is_number(words: str) -> bool:
    return words[0].isdigit()


def _positive(
    table: Table, key: str, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr], default: str | None
) -> sp.Expr:
    expr = _number(table, key, names, values, default)
    here = expr.xreplace(dict(values))
    if here.is_positive is False or (here.is_number and not here.is_positive):
        raise TaskError(f"{table.name}.{key} is {text(here)}; it must be positive.")
    return expr


FAMILY = SparseToken
