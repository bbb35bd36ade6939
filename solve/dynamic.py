"""The exponent after the positional overlap has escaped: where it goes, and what the teacher's overlap does there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy as sp

from derive.decision import Certificate, Decide, Sign
from derive.exponent import Coefficient, Exponent
from derive.mechanisms.spherical_sgd import SphericalSgd
from derive.rules import reduced
from derive.task import TaskSpec
from derive.tasks.sequence_single_index import SequenceSingleIndex
from derive.trapping import Trapped
from solve.domain import Box
from solve.lower import lower
from solve.stationary import stationary_points

__all__ = ["dynamic_exponent", "with_dynamics"]

_DIGITS = 10**12
_POINTS = 400


def with_dynamics(task: TaskSpec, exponents: Mapping[str, Exponent], order: int, decide: Decide) -> dict[str, Exponent]:
    """The exponents of a task with `dynamic_sie` where there is a joint one."""
    if not isinstance(task, SequenceSingleIndex) or "joint_sie" not in exponents:
        return dict(exponents)
    problem = task.at_values().problem
    return {**exponents, "dynamic_sie": dynamic_exponent(problem, exponents["joint_sie"], order, decide)}


def dynamic_exponent(problem: SphericalSgd, joint: Exponent, order: int, decide: Decide) -> Exponent:
    """The exponent of SGD from small overlaps with the target and with one direction of positions, m and e.

    Where e is unstable at a lower degree than the joint exponent, or at degree 2 grows faster than an m that does
    not mix with it, it escapes to e* first, at a small learning rate along de/dtau = -(1 - e^2) R_e(0, e). Then m
    escapes from (0, e*) by the least j with a nonzero coefficient of m^j there, and the larger of the two degrees
    rules. Otherwise it is the joint exponent. On the rim e* = +-1 the sphere pulls m back at the rate |R_e|.
    """
    if not isinstance(joint.value, int):
        return joint
    teacher = {k for _, k in problem.teacher_of}
    others = [k for k in range(len(problem.overlaps)) if k not in teacher]
    if len(others) != 1 or len(teacher) != 1:
        reason = "followed for one overlap with the target and one with the positions"
        return Exponent(None, Certificate.UNDECIDED, reason, order)
    case = _Case(problem, min(teacher), others[0], order, decide)
    first = _positional_degree(case, joint)
    if first is None:
        return replace(joint, reason=f"the joint exponent, as e does not escape first; {joint.reason}")
    ends = {end: case.after_escape(end, first) for end in case.ends()}
    if not ends:
        return Exponent(None, Certificate.UNDECIDED, "no end of the escape of e was found", order)
    best = min(ends.values(), key=lambda x: (x.trapped is Trapped.YES, x.value is None, x.value or 0))
    if len({(x.value, x.trapped) for x in ends.values()}) > 1:
        best = replace(best, trapped=Trapped.DEPENDS_ON_START, reason=f"{best.reason}; the sign of e decides")
    return best


def _positional_degree(case: _Case, joint: Exponent) -> int | None:
    """The degree at which e escapes before m; None where it does not."""
    assert isinstance(joint.value, int)
    for k in range(1, joint.value + 1):
        form = case.problem.form(k, positions=True)
        c = next((v for n, v in form.items() if n[case.e] == k), sp.S.Zero)
        sign = case.decide(c).sign
        if sign is Sign.ZERO:
            continue
        if sign is not Sign.POSITIVE and k % 2 == 0:
            return None
        if k < joint.value:
            return k
        mixed = any(n[case.e] and n[case.m] for n in form)
        slower = k == 2 and case.decide(c - form.get(_unit(case, k), sp.S.Zero)).sign is Sign.POSITIVE
        return k if slower and not mixed else None
    return None


def _unit(case: _Case, k: int) -> tuple[int, ...]:
    return tuple(k if i == case.m else 0 for i in range(len(case.problem.overlaps)))


@dataclass(frozen=True)
class _Case:
    problem: SphericalSgd
    m: int
    e: int
    order: int
    decide: Decide

    @property
    def pull(self) -> sp.Expr:
        """R_e(0, e)."""
        o = self.problem.overlaps
        return reduced(self.problem.risk.diff(o[self.e]).doit().xreplace({o[self.m]: sp.S.Zero}))

    def ends(self) -> list[sp.Expr]:
        """Where e goes from a small value of either sign: the rim, or the nearest stable zero of R_e(0, e)."""
        e = self.problem.overlaps[self.e]
        drift = lower([-(1 - e**2) * self.pull], [e])
        found = stationary_points(lambda x: drift(x[0])[0], Box.closed([-1.0], [1.0]), _POINTS)
        zeros = [p for p in found if abs(p.at[0]) > 1e-6]
        ends = []
        for side in (1, -1):
            there = sorted((p for p in zeros if p.at[0] * side > 0), key=lambda p: abs(p.at[0]))
            moves = drift(side * 1e-3)[0][0] * side > 0
            if there and moves:
                value = float(there[0].at[0])
                rim = abs(abs(value) - 1) <= 1e-9
                ends.append(sp.Integer(side) if rim else sp.Rational(round(value * _DIGITS), _DIGITS))
        return ends

    def after_escape(self, end: sp.Expr, first: int) -> Exponent:
        """The exponent of m at (0, end), with the sign rule there."""
        at = {self.problem.overlaps[self.e]: end}
        seen: list[Coefficient] = []
        where = f"e escapes first, at degree {first}, to {sp.Float(end, 6)} (located numerically)"
        for j in range(1, self.order + 1):
            c = self.problem.form(j, at=at).get(_unit(self, j), sp.S.Zero)
            decision = self.decide(c)
            seen.append(Coefficient("dynamic", _unit(self, j), c, decision))
            if decision.sign is Sign.UNDECIDED:
                return Exponent(None, Certificate.UNDECIDED, f"{where}; {decision.reason}", self.order, tuple(seen))
            if decision.is_nonzero:
                trapped, words = self._trapped(j, c, end)
                reason = f"{where}; there the exponent is {j} ({decision.reason}){words}"
                return Exponent(max(first, j), Certificate.UNDECIDED, reason, self.order, tuple(seen), trapped)
        reason = f"{where}; there every degree up to {self.order} vanishes"
        return Exponent(None, Certificate.UNDECIDED, reason, self.order, tuple(seen))

    def _trapped(self, j: int, c: sp.Expr, end: sp.Expr) -> tuple[Trapped, str]:
        """dm/dtau = j c m^(j-1) + m e R_e(0, e) near (0, e*); the last term vanishes inside the disc."""
        if j == 1:
            return Trapped.NO, ""
        pull = sp.S.Zero if abs(end) != 1 else end * self.pull.xreplace({self.problem.overlaps[self.e]: end})
        growth = pull + (2 * c if j == 2 else 0)
        if growth == 0:
            sign = self.decide(c).sign
            return (Trapped.DEPENDS_ON_START if j % 2 else Trapped.NO if sign is Sign.POSITIVE else Trapped.YES), ""
        sign = self.decide(reduced(growth)).sign
        words = "; the pull of the rim wins" if sign is Sign.NEGATIVE and self.decide(c).sign is Sign.POSITIVE else ""
        trapped = {Sign.POSITIVE: Trapped.NO, Sign.NEGATIVE: Trapped.YES}.get(sign, Trapped.UNKNOWN)
        return trapped, words
