"""Sequence single-index models: a target of L Gaussian tokens seen along one direction, learned by SGD.

Target g(z*_1 .. z*_L), z*_i = <x_i, w*>; student: attention, tied or untied network  [arXiv:2506.02651].
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import sympy as sp

from derive.decision import Decide, Decision
from derive.document import Document, Table, TaskError
from derive.equations import Define, Equation, EquationSystem, Flow, Quantity, Source
from derive.exponent import Exponent, joint_exponent, pair_exponent, target_exponent
from derive.hermite import HermiteExpansion
from derive.losses import check_descent, check_generic, check_point_masses, read_loss
from derive.mechanisms.escape import LAW_NAMES, escape_laws, gain_laws
from derive.mechanisms.spherical_sgd import SphericalSgd, cross_terms
from derive.mechanisms.transitions import CRITERIA, Landscape, critical_system, landscape
from derive.parse import FormulaError, parse_expression
from derive.rules.growth import undefined, unsquarable
from derive.settings import SolveSettings, VerifySettings
from derive.students import Student, StudentKind, name_generic_coefficients, network, read_student
from derive.table import Unsupported
from derive.task import TaskSpec, dimension

__all__ = ["SequenceSingleIndex", "Start"]

PAPER = "arXiv:2506.02651"
RESERVED = (
    "m",
    "e",
    "mu",
    "tau",
    "V",
    "R",
    "S",
    "G",
    "n",
    "f",
    "y",
    "u",
    "s",
    "w",
    "x",
    "escape_time",
    "escape_steps",
    *LAW_NAMES,
)
risk_symbol = sp.Symbol("R", real=True)
gradient_norm_symbol = sp.Symbol("V", nonnegative=True)


class Start(enum.Enum):
    """Where training starts, where no overlaps are given."""

    RANDOM = "random"
    ORTHOGONAL = "orthogonal"


@dataclass(frozen=True)
class SequenceSingleIndex(TaskSpec):
    """The task. `target` in `tokens`, flattened; `loss` a Lambda of (outputs, labels); see `Student`.

    `positions` (L, r): positional encodings in an orthonormal basis of their span, None for none.
    `start`: a rule, or the initial overlaps by symbol.
    """

    length: int
    parameters: tuple[Quantity, ...]
    tokens: tuple[sp.Symbol, ...]
    target: tuple[sp.Expr, ...]
    student: Student
    loss: sp.Lambda
    learning_rate: sp.Expr
    start: Start | Mapping[sp.Symbol, sp.Expr] = Start.RANDOM
    positions: sp.ImmutableDenseMatrix | None = None
    values: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    solve: SolveSettings = field(default_factory=SolveSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)

    IMPLIED: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "d": {"domain": "(0,inf)", "meaning": "dimension of a token"},
    }
    SHORT_FORMS: ClassVar[Mapping[str, str]] = {
        "L": "data.length",
        "loss": "training.loss",
        "activation": "student.activation",
        "student": "student.kind",
        "learning_rate": "training.learning_rate",
        "start": "training.start",
    }

    def __post_init__(self) -> None:
        if self.positions is not None and self.student.kind is StudentKind.UNTIED:
            raise TaskError(
                "data.positions: an untied student reads each token by its own weights; leave positions out."
            )
        if len(self.target) != len(self.student.output):
            raise TaskError(
                f"target.formula has {len(self.target)} outputs, the student has {len(self.student.output)}; "
                "the loss compares them one by one. Make the target's shape the student's, or choose a reduction."
            )

    # ---- the overlaps -------------------------------------------------------------------------------------
    @cached_property
    def overlaps(self) -> tuple[Quantity, ...]:
        """m, or mu1 .. muL (untied), then e or e1 .. er for positions."""
        unit = sp.Interval(-1, 1)
        if self.student.kind is StudentKind.UNTIED:
            return tuple(
                Quantity(
                    sp.Symbol(f"mu{i + 1}", real=True),
                    f"overlap <w_{i + 1}, w*>/(d sqrt L) of token {i + 1}'s weights",
                    unit,
                )
                for i in range(self.length)
            )
        rank = 0 if self.positions is None else self.positions.cols
        names = ["e"] if rank == 1 else [f"e{k + 1}" for k in range(rank)]
        positional = (Quantity(sp.Symbol(n, real=True), "overlap with the positional encodings", unit) for n in names)
        return (Quantity(sp.Symbol("m", real=True), "overlap <w, w*>/d", unit), *positional)

    @property
    def overlap_symbols(self) -> tuple[sp.Symbol, ...]:
        return tuple(q.symbol for q in self.overlaps)

    @property
    def weights(self) -> sp.Expr:
        """D, the dimension of the trained vector: d, or L d for an untied student."""
        return dimension * (self.length if self.student.kind is StudentKind.UNTIED else 1)

    @property
    def objective(self) -> sp.Symbol:
        return risk_symbol

    @property
    def clock(self) -> sp.Expr:
        return self.weights / self.learning_rate

    @property
    def left_out(self) -> frozenset[sp.Symbol]:
        """The noise covariances of an attention student, unless the settings ask for them."""
        wanted = self.solve.noise
        keep = self.student.kind is not StudentKind.ATTENTION if wanted is None else wanted
        return frozenset() if keep else frozenset(q.symbol for q, _, _ in self._noise_quantities())

    @cached_property
    def problem(self) -> SphericalSgd:
        """The task in its Gaussian fields."""
        count = len(self.overlaps)
        untied = self.student.kind is StudentKind.UNTIED
        positions = sp.zeros(self.student.mixing.cols, count)
        if self.positions is not None:
            positions[:, 1:] = self.positions
        return SphericalSgd(
            student=self.student.fields,
            teacher=self.tokens,
            teacher_of=tuple((0, i) if untied else (i, 0) for i in range(self.length)),
            mixing=self.student.mixing,
            overlaps=self.overlap_symbols,
            gram=sp.ImmutableDenseMatrix(sp.eye(count)),
            positions=sp.ImmutableDenseMatrix(positions),
            loss=self.loss(*self.student.output, *self.target),
            learning_rate=self.learning_rate,
            cross=cross_terms(self.loss, self.student.output, self.target),
        )

    # ---- what is derived ----------------------------------------------------------------------------------
    def check(self) -> None:
        """Raises `Unsupported` where the drift of the overlaps cannot be derived, although exponents may be."""
        if self.problem.cross is not None:
            teachers = [term.teacher for term in self.problem.cross]
            check_point_masses(teachers, self.problem.teacher, self.problem.fields, "target.formula: a jump")
            return
        slopes = [self.problem.loss.diff(s) for s in self.problem.student]
        cause = "training.loss, target.formula: a kink of the loss, or a jump of the target,"
        check_point_masses(slopes, self.problem.teacher, self.problem.fields, cause)

    def equations(self) -> EquationSystem:
        """Flow of the overlaps in tau = learning rate * steps / D, with V, R and the noise covariance S."""
        if self.student.is_generic:
            raise TaskError(
                "student.activation: a generic activation has exponents but no equations; name one, e.g. relu(x)."
            )
        problem = self.problem
        v = Quantity(gradient_norm_symbol, "E |gradient of the loss in the fields|^2", sp.Interval(0, sp.oo))
        drift = problem.drift(v.symbol)
        flows: list[Equation] = [
            Flow(
                q,
                drift[k],
                Source(PAPER, "spherical SGD, high-dimensional limit; derived by Price's theorem"),
            )
            for k, q in enumerate(self.overlaps)
        ]
        derived = Source("derived", "Gaussian expectation over the fields")
        rest: list[Equation] = [
            Define(v, problem.gradient_norm, derived),
            Define(Quantity(risk_symbol, "population risk", sp.Interval(0, sp.oo)), problem.risk, derived),
        ]
        rest += [Define(q, problem.noise(i, j), derived) for q, i, j in self._noise_quantities()]
        return EquationSystem((*flows, *rest), self._parameters([*flows, *rest]), self._initial())

    def exponents(self, order: int, decide: Decide) -> Mapping[str, Exponent]:
        """`target_sie` of the target, `sie` of target and student, `joint_sie` with positions, at the task's values."""
        here = self.at_values()
        plain = replace(here, positions=None)

        def decide_here(value: sp.Expr) -> Decision:
            return decide(name_generic_coefficients(value))

        found = {
            "target_sie": target_exponent(here.target, here.tokens, order, decide_here),
            "sie": pair_exponent(plain.problem, order, decide_here, here.highest_degree()),
        }
        if self.positions is not None:
            found["joint_sie"] = joint_exponent(here.problem, order, decide_here)
        return {name: exponent.mapped(name_generic_coefficients) for name, exponent in found.items()}

    def at_values(self) -> Self:
        """The task with the values of its parameters put in."""
        if not self.values:
            return self
        output = tuple(f.xreplace(self.values) for f in self.student.output)
        return replace(
            self,
            target=tuple(g.xreplace(self.values) for g in self.target),
            student=replace(self.student, output=output),
            loss=sp.Lambda(self.loss.variables, self.loss.expr.xreplace(self.values)),
            values={},
        )

    def laws(self, exponents: Mapping[str, Exponent]) -> EquationSystem | None:
        """Growth, largest learning rate and steps to escape, where the exponent is known."""
        k = exponents["sie"].value
        if not isinstance(k, int) or self.positions is not None or self.student.is_generic:
            return None
        random_start = isinstance(self.start, Start)
        # of a random start, the component along the direction of escape
        initial = (
            1 / sp.sqrt(self.weights) if random_start else sp.sqrt(sp.Add(*(v**2 for v in self._initial().values())))
        )
        parameters = self._all_parameters()
        escape = escape_laws(self.problem, k, self.weights, initial, parameters, random_start, self.solve.escape)
        return _joined(escape, self._gain(k))

    @property
    def control(self) -> Quantity | None:
        """The parameter whose critical values are asked for.

        The one of the settings, else the only parameter of target, student and loss without a default value.
        """
        read = set().union(*(f.free_symbols for f in (*self.target, *self.student.output)), self.loss.expr.free_symbols)
        usable = [q for q in self.parameters if q.symbol in read]
        named = self.solve.critical
        if named is not None:
            return next((q for q in usable if q.symbol.name == named), None)
        needed = [q for q in usable if q.default is None]
        return needed[0] if len(needed) == 1 else None

    @cached_property
    def landscape(self) -> Landscape | None:
        """The risk of one overlap with the target and one with the positions, None for other overlaps."""
        return None if self.positions is None or self.student.is_generic else landscape(self.problem)

    def thresholds(self) -> EquationSystem | None:
        """Critical values of the control parameter."""
        if self.control is None or self.landscape is None:
            return None
        return critical_system(self.landscape.criteria, self.control, self._all_parameters())

    @cached_property
    def gradient_flow(self) -> EquationSystem:
        """The flow of the overlaps in the limit of a small learning rate."""
        flows = tuple(
            Flow(q, rhs, Source(PAPER, "spherical SGD at a small learning rate"))
            for q, rhs in zip(self.overlaps, self.problem.drift(sp.S.Zero), strict=True)
        )
        return EquationSystem(flows, self._parameters(list(flows)), self._initial())

    def _gain(self, k: int) -> EquationSystem | None:
        """The gain of tying the weights, for the learning-rate rule of the settings."""
        if self.student.kind is StudentKind.ATTENTION:
            return None
        u = self.student.fields[0]
        activation = sp.Lambda(u, self.student.output[0])
        tied, untied = (
            replace(self, student=network(kind, self.length, activation)).problem
            for kind in (StudentKind.TIED, StudentKind.UNTIED)
        )
        return gain_laws(tied, untied, k, self.length, self.solve.learning_rate_ratio, self._all_parameters())

    def _noise_quantities(self) -> list[tuple[Quantity, int, int]]:
        names = [s.name for s in self.overlap_symbols]
        meaning = "noise covariance of the overlaps, per sqrt(learning rate / D)"
        return [
            (Quantity(sp.Symbol(f"S_{a}" if a == b else f"S_{a}_{b}", real=True), meaning), i, j)
            for i, a in enumerate(names)
            for j, b in enumerate(names)
            if i <= j
        ]

    def _initial(self) -> dict[sp.Symbol, sp.Expr]:
        """Initial overlaps; a random start is represented by its root mean square, 1/sqrt(D) each."""
        if isinstance(self.start, Mapping):
            return {s: self.start.get(s, sp.S.Zero) for s in self.overlap_symbols}
        typical = 1 / sp.sqrt(self.weights)
        positional = sp.S.Zero if self.start is Start.ORTHOGONAL else typical
        first = self.length if self.student.kind is StudentKind.UNTIED else 1
        return {s: typical if i < first else positional for i, s in enumerate(self.overlap_symbols)}

    def _all_parameters(self) -> tuple[Quantity, ...]:
        implied = Quantity(dimension, "dimension of a token", sp.Interval.open(0, sp.oo))
        return self.parameters if dimension in (q.symbol for q in self.parameters) else (*self.parameters, implied)

    def _parameters(self, equations: list[Equation]) -> tuple[Quantity, ...]:
        read = set().union(*(e.reads() for e in equations), *(v.free_symbols for v in self._initial().values()))
        return tuple(p for p in self._all_parameters() if p.symbol in read or p in self.parameters)

    def highest_degree(self) -> int | None:
        """Above this degree no Hermite coefficient of a label enters the risk's cross terms; None if unknown."""
        if self.problem.cross is None:
            return None
        try:
            degrees = [HermiteExpansion(t.teacher, self.tokens).degree for t in self.problem.cross]
        except Unsupported:  # a power of the label too large to expand: no bound is known
            return None
        return None if any(d is None for d in degrees) else max((d for d in degrees if d is not None), default=0)

    # ---- reading ------------------------------------------------------------------------------------------
    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The task that a document states; raises `TaskError` naming the key for what is not allowed."""
        parameters = document.parameters(RESERVED)
        if any(q.symbol.name == "L" for q in parameters):
            raise TaskError(f"{document.where(('parameters', 'L'))}: L is the number of tokens; choose another name.")
        names: dict[str, Any] = {q.symbol.name: q.symbol for q in parameters}
        data = document.table("data", required=True)
        length = data.integer("length", 1, 64)
        positions = _positions(data, length)
        tokens = sp.symbols(f"z1:{length + 1}", real=True)
        names.setdefault("L", sp.Integer(length))
        in_tokens = names | {t.name: t for t in tokens} | {"z": sp.ImmutableDenseMatrix(tokens)}
        formula = document.table("target", required=True).formula("formula", in_tokens)
        target = tuple(formula) if isinstance(formula, sp.MatrixBase) else (formula,)
        student = read_student(document.table("student", required=True), length, names)
        training = document.table("training", required=False)
        if names.setdefault("d", dimension) != dimension:
            raise TaskError('parameters.d is the dimension of a token; its domain is "(0,inf)".')
        task = cls(
            length=length,
            parameters=parameters,
            tokens=tokens,
            target=target,
            student=student,
            loss=read_loss(training, student.shape, names),
            learning_rate=_learning_rate(training, names, document.values),
            positions=positions,
            values=document.values,
            solve=SolveSettings.read(document.table("solve", required=False), length),
            verify=VerifySettings.read(document.table("verify", required=False)),
        )
        task = replace(task, start=_start(training, task, names))
        taken = {q.symbol.name for q in (*task.overlaps, *(q for q, _, _ in task._noise_quantities()))}
        clash = sorted(taken & {q.symbol.name for q in parameters})
        if clash:
            raise TaskError(
                f"{document.where(('parameters', clash[0]))}: {clash[0]} is a quantity of this theory; choose another."
            )
        if task.solve.critical is not None and task.control is None:
            raise TaskError(
                f"solve.critical is {task.solve.critical!r}; it must be a declared parameter that the target, the "
                "student or the loss reads."
            )
        derived = {f"{q.symbol.name}_{name}" for q in parameters for name in CRITERIA}
        clash = sorted(derived & {q.symbol.name for q in parameters})
        if clash:
            raise TaskError(f"{document.where(('parameters', clash[0]))}: that is the name of a critical value.")
        document.finish()
        _check_functions(task.at_values())
        return task


def _check_functions(task: SequenceSingleIndex) -> None:
    """Raises `TaskError` where SGD surely does not move, or target or student have no second moment."""
    student = task.student
    check_descent(task.loss, student.output, student.fields)
    if student.is_generic:
        check_generic(task.loss, len(student.output))
    named = (("target.formula", task.target, task.tokens), ("student.activation", student.output, student.fields))
    for key, functions, variables in named:
        x = (sp.Symbol("x", real=True),) if student.kind is not StudentKind.ATTENTION and key[0] == "s" else variables
        for g in dict.fromkeys(f.xreplace(dict(zip(variables, x, strict=True))) for f in functions):
            reason = undefined(g, x) or unsquarable(g, x)
            if reason is not None:
                raise TaskError(
                    f"{key}: {reason}. Use a function with a finite mean square under the Gaussian law"
                    f"{', e.g. sqrt(relu(x)), log(abs(x)) or 1/(1 + x**2)' if key != 'target.formula' else ''}."
                )


def _joined(first: EquationSystem | None, second: EquationSystem | None) -> EquationSystem | None:
    if first is None or second is None:
        return first or second
    return EquationSystem(
        (*first.equations, *second.equations), tuple(dict.fromkeys((*first.parameters, *second.parameters)))
    )


def _positions(data: Table, length: int) -> sp.ImmutableDenseMatrix | None:
    if not data.has("positions"):
        return None
    positions = data.matrix("positions")
    if positions.rows != length:
        raise TaskError(f"data.positions has {positions.rows} rows; it needs one for each of the {length} tokens.")
    return positions


def _learning_rate(training: Table, names: Mapping[str, Any], values: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    rate = training.formula("learning_rate", names)
    if isinstance(rate, sp.MatrixBase):
        raise TaskError("training.learning_rate is a matrix; it must be one positive number or formula.")
    here = rate.xreplace(dict(values))
    if here.is_positive is False or (here.is_number and not here.is_positive):
        known = f" = {here}" if here != rate else ""
        raise TaskError(f"training.learning_rate is {rate}{known}; it must be positive.")
    return rate


def _start(training: Table, task: SequenceSingleIndex, names: Mapping[str, Any]) -> Start | Mapping[sp.Symbol, sp.Expr]:
    """A rule, or overlaps; for an untied student m = c sets all of mu1 .. muL to c / sqrt L."""
    value = training.raw("start", default=Start.RANDOM.value)
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        return Start(training.choice("start", tuple(s.value for s in Start), default=Start.RANDOM.value))
    try:
        given = {
            name: parse_expression(str(text), names, what=f"training.start.{name}")
            for name, text in training.assignments("start").items()
        }
    except FormulaError as error:
        raise TaskError(str(error)) from None
    known = {s.name: s for s in task.overlap_symbols}
    if task.student.kind is StudentKind.UNTIED and set(given) == {"m"}:
        start = dict.fromkeys(task.overlap_symbols, given["m"] / sp.sqrt(task.length))
    else:
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise TaskError(
                f"training.start: {', '.join(unknown)} is no overlap of this task; there are {', '.join(known)}."
            )
        start = {known[name]: v for name, v in given.items()}
    total = sp.Add(*(v.xreplace(dict(task.values)) ** 2 for v in start.values()))
    if total.is_number and not total.is_real:
        raise TaskError("training.start: the overlaps must be real numbers.")
    if total.is_number and total > 1:
        raise TaskError("training.start: the squares of the overlaps sum to more than 1; no such vector exists.")
    return start


FAMILY = SequenceSingleIndex
