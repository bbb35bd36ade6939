"""Attention-indexed models: attention matrices of a target S0 learnt by a student S, with a penalty on its eigenvalues.

Tokens x_1 .. x_T ~ N(0, I_d) have indices h_ab(S) = (x_a^T S x_b - delta_ab Tr S)/sqrt d. Labels are the output of
h(S0) + xi, Var xi_ab = noise/(2 - delta_ab); n = alpha d^2 samples. Student: S = W W^T/sqrt(p d) with p = kappa d and
weight decay on W, or S itself  [arXiv:2509.24914].
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import sympy as sp

from derive.document import Document, Table, TaskError
from derive.equations import EquationSystem, Quantity
from derive.functions import without_kinks_hidden
from derive.mechanisms.index_channel import IndexChannel
from derive.mechanisms.spectral_erm import SpectralErm
from derive.mechanisms.spectral_systems import proxy, reduced, state_evolution, unpenalised
from derive.mechanisms.spectral_thresholds import SpectralThresholds
from derive.parse import parse_expression
from derive.proximal import Confined, non_convex_point
from derive.settings import SolveSettings, VerifySettings
from derive.spectra import PowerLaw, Spectrum
from derive.spectrum_table import read_spectrum
from derive.symmetric_indices import Indices
from derive.table import Unsupported
from derive.task import Caution, Limit, TaskSpec
from derive.text import text

__all__ = ["AttentionIndexed", "Outputs", "Parametrisation"]

RESERVED = (
    *("q", "m", "Sigma", "q_hat", "m_hat", "Sigma_hat", "delta", "eta", "eps", "Q0", "mse", "rank", "replicon"),
    *("training_loss", "objective", "test_error", "test_error_clean", "e_over", "e_under", "e_approx", "e_mismatch"),
    *("h", "f", "y", "s", "x", "d", "n", "u", "S", "W"),
)
_MOST_TOKENS = 8
_OUTPUTS: Mapping[str, str] = {"softmax": "softmax(beta*h)", "linear": "beta*h"}
_s = sp.Symbol("s", real=True)


class Parametrisation(enum.Enum):
    """What is trained: W with S = W W^T/sqrt(p d), or the symmetric S."""

    FACTORISED = "factorised"
    DIRECT = "direct"


class Outputs(enum.Enum):
    """What is compared: the attention matrix A, or A X, the tokens that it mixes."""

    LABELS = "seq2lab"
    SEQUENCES = "seq2seq"


@dataclass(frozen=True)
class AttentionIndexed(TaskSpec):
    """spectrum: of S0. target, student: symmetric indices; labels and outputs: (T, T) matrices of formulas in them.

    loss: of labels and outputs, of one sample. weight_decay: on |W|_F^2; frobenius: on d |S|_F^2; spectral: a penalty
    of an eigenvalue s of S, on d Tr. kappa: p/d of a factorised student.
    """

    spectrum: Spectrum
    target: Indices
    student: Indices
    labels: sp.ImmutableDenseMatrix
    outputs: sp.ImmutableDenseMatrix
    loss: sp.Expr
    noise: sp.Expr
    compared: Outputs
    parametrisation: Parametrisation
    kappa: sp.Expr
    weight_decay: sp.Expr
    frobenius: sp.Expr
    spectral: sp.Expr
    alpha: sp.Expr
    asks_thresholds: bool
    parameters: tuple[Quantity, ...]
    values: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    solve: SolveSettings = field(default_factory=SolveSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)

    SHORT_FORMS: ClassVar[Mapping[str, str]] = {
        **{name: f"channel.{name}" for name in ("T", "output", "beta", "beta0", "noise", "loss")},
        **{"kappa": "student.kappa", "spectrum": "target.spectrum", "frobenius": "regulariser.frobenius"},
    }

    # ---- what is derived ----------------------------------------------------------------------------------
    @property
    def tokens(self) -> int:
        """T."""
        return self.student.tokens

    @property
    def penalty(self) -> sp.Lambda:
        """Of an eigenvalue s: weight decay lam |W|_F^2 = d sqrt(kappa) lam Tr S, Frobenius d |S|_F^2, the user's."""
        own = self.frobenius * _s**2 + self.spectral
        if self.parametrisation is Parametrisation.FACTORISED:
            own += sp.sqrt(self.kappa) * self.weight_decay * _s + Confined(_s, 0, sp.oo)
        return sp.Lambda(_s, own)

    def check(self) -> None:
        """Raises `Unsupported` for a loss with kinks that joins several indices."""
        if self.problem.channel.parts is None and without_kinks_hidden(self.loss).has(sp.Heaviside):
            raise Unsupported(
                f"channel.loss is {text(self.loss)}, which has kinks and joins several indices; such losses must be "
                "smooth. With output = linear, a sum over entries may have kinks."
            )

    @cached_property
    def problem(self) -> SpectralErm:
        """Training as risk minimisation with a spectral penalty; exact while kappa exceeds the student's rank."""
        channel = IndexChannel(self.loss, self.target, self.student)
        return SpectralErm(self.spectrum, self.penalty, channel, self.noise, self.alpha)

    def equations(self) -> EquationSystem:
        """State evolution, whose fixed point is the minimum; for two unknowns where that is possible."""
        if self.asks_thresholds:
            limits = self._thresholds.equations()
            return EquationSystem(limits.equations, self.parameters, limits.start)
        found = reduced(self.problem) or state_evolution(self.problem)
        return EquationSystem(found.equations, self.parameters, found.start)

    @cached_property
    def _thresholds(self) -> SpectralThresholds:
        factorised = self.parametrisation is Parametrisation.FACTORISED
        return SpectralThresholds(self.problem, sp.sqrt(self.kappa) if factorised else None, self.values)

    @property
    def absent(self) -> Mapping[str, str]:
        return self._thresholds.absent if self.asks_thresholds else {}

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Where the theory does not hold: too few columns of W, an unstable minimum, large eigenvalues in a softmax."""
        if self.asks_thresholds:
            return ()
        rank, replicon = (sp.Symbol(name, real=True) for name in ("rank", "replicon"))
        found = [Caution(replicon - 1, "replicon above 1: the minimum that the theory describes is not stable.")]
        if self.parametrisation is Parametrisation.FACTORISED:
            few = "rank above kappa: W has too few columns to be this minimum, and the theory does not hold."
            found.append(Caution(rank - self.kappa, few))
            if self.spectrum.has_negative:
                negative = "the target has negative eigenvalues, which S = W W^T/sqrt(p d) cannot have."
                found.append(Caution(sp.S.One, negative))
        if isinstance(self.spectrum, PowerLaw) and self.problem.channel.parts is None:
            large = (
                "eigenvalues of the target grow with d, and its indices are not Gaussian in the limit: errors and "
                "losses of outputs are off by O(1); trust mse and what is read of S."
            )
            found.append(Caution(sp.S.One, large))
        return tuple(found)

    @property
    def proxy(self) -> EquationSystem | None:
        if self.asks_thresholds or self.problem.channel.parts is not None:
            return None
        found = proxy(self.problem)
        return EquationSystem(found.equations, self.parameters, found.start)

    @property
    def eased(self) -> tuple[EquationSystem, sp.Symbol] | None:
        """With more Frobenius penalty, which leaves no weights at zero and makes the minimum unique."""
        if self.asks_thresholds:
            return None
        eps = sp.Symbol("eps_frobenius", nonnegative=True)
        found = state_evolution(replace(self, frobenius=self.frobenius + eps).problem)
        return EquationSystem(
            found.equations, (*self.parameters, Quantity(eps, "added to frobenius")), found.start
        ), eps

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Without a penalty: S that the samples determine, else the least of those that fit."""
        found = None if self.asks_thresholds else unpenalised(self.problem)
        systems = () if found is None else (EquationSystem(s.equations, self.parameters, s.start) for s in found)
        return tuple(Limit(s, self.weight_decay, frozenset(), direct=True) for s in systems)

    # ---- reading ------------------------------------------------------------------------------------------
    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The task that a document states; raises `TaskError` naming the key for what is not allowed."""
        parameters = document.parameters(RESERVED)
        names: dict[str, Any] = {q.symbol.name: q.symbol for q in parameters}
        known = _Reader(names, document.values)
        channel = document.table("channel", required=True)
        student = document.table("student", required=False)
        penalties = document.table("regulariser", required=False)
        kind = Parametrisation(student.choice("parametrisation", [p.value for p in Parametrisation], "factorised"))
        target, own = (Indices(channel.integer("T", 1, _MOST_TOKENS), name) for name in ("k", "h"))
        labels, outputs, loss = _channel(channel, known, target, own)
        task = cls(
            spectrum=read_spectrum(document.table("target", required=True), "spectrum", names, document.values),
            target=target,
            student=own,
            labels=labels,
            outputs=outputs,
            loss=loss,
            noise=known.at_least(channel, "noise", "0"),
            compared=_compared(channel, names),
            parametrisation=kind,
            kappa=known.above(student, "kappa", "1"),
            weight_decay=known.at_least(penalties, "weight_decay", "0"),
            frobenius=known.at_least(penalties, "frobenius", "0"),
            spectral=penalties.scalar("spectral", names | {"s": _s}, "0"),
            alpha=known.above(channel, "alpha", "alpha"),
            asks_thresholds="thresholds" in document.data,
            parameters=parameters,
            values=document.values,
            solve=SolveSettings.of_fixed_points(document.table("solve", required=False)),
            verify=VerifySettings.read(document.table("verify", required=False), methods=False, optimisers=True),
        )
        document.table("thresholds", required=False)
        document.finish()
        _check_penalty(task)
        return task


@dataclass(frozen=True)
class _Reader:
    """Numbers and formulas in the parameters, checked at the values that these have."""

    names: Mapping[str, Any]
    values: Mapping[sp.Symbol, sp.Expr]

    def above(self, table: Table, key: str, default: str) -> sp.Expr:
        """A positive one."""
        return self._checked(table, key, default, lambda here: here.is_positive, "positive")

    def at_least(self, table: Table, key: str, default: str) -> sp.Expr:
        """One that is not negative."""
        return self._checked(table, key, default, lambda here: here.is_nonnegative, "zero or positive")

    def _checked(self, table: Table, key: str, default: str, allowed: Any, words: str) -> sp.Expr:
        if default.isidentifier() and default not in self.names and not table.has(key):
            raise TaskError(f"{table.name}.{key} is missing, and no parameter {default} is declared; give one of them.")
        expr = table.scalar(key, self.names, default)
        here = expr.xreplace(dict(self.values))
        if allowed(here) is False or (here.is_number and not allowed(here)):
            raise TaskError(f"{table.name}.{key} is {text(here)}; it must be {words}.")
        return expr


def _channel(
    table: Table, known: _Reader, target: Indices, student: Indices
) -> tuple[sp.ImmutableDenseMatrix, sp.ImmutableDenseMatrix, sp.Expr]:
    """Labels, outputs and loss: formulas in h and beta, the target's with beta0."""
    stated = table.text("output", default="softmax")
    beta, beta0 = known.above(table, "beta", "1"), known.above(table, "beta0", "1")
    labels, outputs = (
        _output(table, stated, {**known.names, "h": indices.matrix, "beta": scale})
        for indices, scale in ((target, beta0), (student, beta))
    )
    loss = table.scalar("loss", {**known.names, "y": labels, "f": outputs}, "sum((f-y)**2)")
    if not any(loss.diff(s) != 0 for s in student.entries):
        raise TaskError(
            f"channel.output is {stated} for T = {student.tokens}: the loss {text(loss)} does not depend on the "
            "student's indices, so nothing can be learnt. Softmax needs T >= 2: one token attends to itself alone."
        )
    return labels, outputs, loss


def _output(table: Table, stated: str, names: Mapping[str, Any]) -> sp.ImmutableDenseMatrix:
    known = stated in _OUTPUTS
    found = parse_expression(_OUTPUTS[stated], names) if known else table.formula("output", names)
    shape = names["h"].shape
    if not isinstance(found, sp.MatrixBase) or found.shape != shape:
        raise TaskError(
            f"channel.output is {stated}; it must be softmax, linear or a formula in h and beta that gives a matrix of "
            f"the shape {shape} of h, e.g. tanh(beta*h)."
        )
    if any(without_kinks_hidden(entry).has(sp.Heaviside) for entry in found):
        raise TaskError(f"channel.output is {stated}, which has kinks; the theory is of smooth outputs.")
    return sp.ImmutableDenseMatrix(found)


def _compared(table: Table, names: Mapping[str, Any]) -> Outputs:
    """What is compared. Of sequences only the square loss is known: |(A - A0) X|_F^2/d -> |A - A0|_F^2."""
    compared = Outputs(table.choice("task", [o.value for o in Outputs], Outputs.LABELS.value))
    if compared is Outputs.SEQUENCES:
        y, f = (sp.Matrix(2, 2, sp.symbols(f"{name}:4", real=True)) for name in "yf")
        loss = table.scalar("loss", {**names, "y": y, "f": f}, "sum((f-y)**2)")
        square = sp.Add(*(v**2 for v in f - y))
        if (loss / square).cancel().has(*y, *f):
            raise TaskError(
                f"channel.loss is {text(loss)} and channel.task is seq2seq: of sequences A X only a multiple of "
                'sum((f-y)**2) has a known limit. Use it, or task = "seq2lab".'
            )
    return compared


def _check_penalty(task: AttentionIndexed) -> None:
    """Raises `TaskError` for a weight decay without weights, and for a penalty that is not convex."""
    if task.parametrisation is Parametrisation.DIRECT and task.weight_decay != 0:
        raise TaskError(
            f"regulariser.weight_decay is {text(task.weight_decay)}, and a direct student has no W to decay. Use "
            'frobenius, or spectral = "lam*abs(s)" for the nuclear norm of S.'
        )
    here = task.penalty.expr.xreplace(dict(task.values))
    here = here.xreplace(dict.fromkeys(here.free_symbols - {_s}, sp.S.One))
    try:
        place = non_convex_point(sp.Lambda(_s, here))
    except (TypeError, ValueError):
        raise TaskError(
            f"regulariser.spectral is {text(task.spectral)}, which is no real number for every eigenvalue s that the "
            "student may have; a direct student has negative ones, too."
        ) from None
    if place is not None:
        raise TaskError(
            f"regulariser.spectral is {text(task.spectral)}: the penalty is not convex in s, at s = {place:g} it bends "
            "down. The theory is of convex penalties, e.g. lam*abs(s)."
        )


FAMILY = AttentionIndexed
