"""Information exponents with their certificates: of a target alone, and of a target seen by a student.

A target's exponent is the least k >= 1 with a nonzero Hermite coefficient of degree k. The pair's exponent is
the least degree of the population risk in the overlaps at zero overlap; its leading form decides whether the
start is a trap  [arXiv:2506.02651, sequence information exponent; sign rule derived].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

import sympy as sp

from derive.decision import Certificate, Decide, Decision, Sign
from derive.expectation import Expectation
from derive.gaussian import dual_hermite
from derive.hermite import HermiteExpansion
from derive.measures import Gaussian
from derive.mechanisms.spherical_sgd import SphericalSgd
from derive.polynomial import expand, is_zero
from derive.rules import reduced
from derive.students import GenericActivation, GenericOddActivation
from derive.table import Unsupported
from derive.trapping import Trapped, trapped

__all__ = [
    "Coefficient",
    "Exponent",
    "Trapped",
    "joint_exponent",
    "pair_exponent",
    "sample_complexity",
    "target_exponent",
]


_LOW_DEGREES = 2
_MOST_COEFFICIENTS = 20_000  # of one degree, searched one by one


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient that was looked at: of what, its multi-index, its value, what was decided about it."""

    of: str
    index: tuple[int, ...]
    value: sp.Expr
    decision: Decision


@dataclass(frozen=True, slots=True)
class Exponent:
    """`value`: an integer, sympy.oo when proved infinite, None when none was found up to `order`."""

    value: int | sp.Expr | None
    certificate: Certificate
    reason: str
    order: int
    coefficients: tuple[Coefficient, ...] = ()
    trapped: Trapped = Trapped.UNKNOWN

    @property
    def leading(self) -> tuple[Coefficient, ...]:
        """The coefficients of the degree that decides."""
        if not isinstance(self.value, int):
            return ()
        return tuple(c for c in self.coefficients if sum(c.index) == self.value)

    def mapped(self, change: Callable[[sp.Expr], sp.Expr]) -> Exponent:
        """The same exponent with the values of its coefficients rewritten."""
        return replace(self, coefficients=tuple(replace(c, value=change(c.value)) for c in self.coefficients))

    @property
    def interval(self) -> tuple[str, str] | None:
        """The interval of the first coefficient that decided, where ball arithmetic gave one."""
        return next((c.decision.interval for c in self.leading if c.decision.is_nonzero), None)


def target_exponent(target: Sequence[sp.Expr], tokens: tuple[sp.Symbol, ...], order: int, decide: Decide) -> Exponent:
    """The least k in 1..order with some c_alpha(g) != 0, |alpha| = k, over all outputs of the target.

    Raises `Unsupported` for a polynomial of too many terms.
    """
    parts = [HermiteExpansion(g, tokens) for g in target]
    try:
        degrees = [p.degree for p in parts]
    except ValueError as error:
        raise Unsupported(f"target.formula: {error}") from None
    highest = None if any(d is None for d in degrees) else max(d for d in degrees if d is not None)
    seen: list[Coefficient] = []
    for k in range(1, order + 1):
        if highest is not None and k > highest:
            return Exponent(sp.oo, Certificate.EXACT, "the target is constant", order, tuple(seen))
        level = _coefficients("target", [_of_degree(p, k) for p in parts], decide)
        seen += level
        found = _conclude(k, level, order, tuple(seen))
        if found is not None:
            return found
    if highest is not None and highest <= order:
        return Exponent(sp.oo, Certificate.EXACT, "the target is constant", order, tuple(seen))
    return _nothing(order, seen)


def pair_exponent(problem: SphericalSgd, order: int, decide: Decide, highest: int | None = None) -> Exponent:
    """The least degree of R(o) at zero overlap, with its leading form's sign rule.

    `highest`: a degree above which the form is known to vanish (polynomial targets), None if there is none.
    """
    seen: list[Coefficient] = []
    finite = highest is not None and highest <= order
    for k in range(1, order + 1):
        if highest is not None and k > highest:
            break
        # low degrees, and all of a polynomial, cost less than the whole risk; a nonzero one shows that it depends
        if k == _LOW_DEGREES + 1 and not finite and _is_blind(problem):
            return _blind(order)
        level = _coefficients("pair", [_form(problem, k)], decide)
        seen += level
        found = _conclude(k, level, order, tuple(seen))
        if found is not None and found.value is not None:
            return _with_trapping(found, len(problem.overlaps), decide)
        if found is not None:
            return _blind(order) if (finite or k <= _LOW_DEGREES) and _is_blind(problem) else found
    if finite:
        return Exponent(
            sp.oo,
            Certificate.EXACT,
            f"every degree up to {highest}, the target's, vanishes: the risk does not depend on the overlaps",
            order,
            tuple(seen),
            Trapped.YES,
        )
    if order <= _LOW_DEGREES and _is_blind(problem):
        return _blind(order)
    return _nothing(order, seen)


def _of_degree(expansion: HermiteExpansion, k: int) -> dict[tuple[int, ...], sp.Expr]:
    """`expansion.of_degree(k)`, k >= 1; of a sum that is no polynomial by groups of summands that read equal tokens.

    Of a summand only the coefficients in its own tokens are not zero, few where it reads few of many tokens.
    """
    tokens = expansion.tokens
    if expansion.degree is not None:
        return expansion.of_degree(k)
    groups: dict[tuple[int, ...], list[sp.Expr]] = {}
    for part in sp.Add.make_args(expansion.function):
        groups.setdefault(tuple(i for i, z in enumerate(tokens) if part.has_free(z)), []).append(part)
    result: dict[tuple[int, ...], sp.Expr] = {}
    _check_size(max(map(len, groups)), k, "tokens of the target")
    for places, summands in groups.items():
        own = HermiteExpansion(sp.Add(*summands), tuple(tokens[i] for i in places))
        for powers, c in own.of_degree(k).items() if places else ():
            at = dict(zip(places, powers, strict=True))
            alpha = tuple(at.get(i, 0) for i in range(len(tokens)))
            result[alpha] = result.get(alpha, sp.S.Zero) + c
    return {alpha: result[alpha] for alpha in sorted(result, reverse=True) if result[alpha] != 0}


def _check_size(count: int, degree: int, what: str) -> None:
    size = comb(count + degree - 1, degree)
    if size > _MOST_COEFFICIENTS:
        raise Unsupported(
            f"Degree {degree} in {count} {what} has {size} coefficients; at most {_MOST_COEFFICIENTS} are searched. "
            f"Take --order {degree - 1}, or a target of fewer tokens."
        )


def _is_blind(problem: SphericalSgd) -> bool:
    return not problem.cross_risk.has_free(*problem.overlaps)


def _blind(order: int) -> Exponent:
    reason = "the population risk does not depend on the overlaps"
    return Exponent(sp.oo, Certificate.EXACT, reason, order, (), Trapped.YES)


def _form(problem: SphericalSgd, degree: int) -> dict[tuple[int, ...], sp.Expr]:
    """`problem.form(degree)`; of one student field through the nonzero Hermite coefficients of the labels alone.

    -R = - sum_terms weight E[s(u) He_k(u)] sum_alpha E[t(z) He_alpha(z)] prod_j (a_j o_j)^alpha_j / alpha_j!  with
    independent standard normal z, |alpha| = k  [Mehler's formula].
    """
    standard = problem.mixing * problem.mixing.T == sp.eye(1) and problem.gram == sp.eye(len(problem.overlaps))
    if problem.cross is None or not standard or len(set(problem.teacher_of)) < len(problem.teacher):
        _check_size(sum(c != 0 for c in problem.mixing), degree, "products of a student's and a teacher's field")
        return problem.form(degree)
    result: dict[tuple[int, ...], sp.Expr] = {}
    law = Gaussian([0], [[1]])
    for term in problem.cross:
        hermite = dual_hermite((degree,), problem.student, law.cov)
        student = reduced(Expectation(term.student * hermite, problem.student, law))
        if student == 0:
            continue
        for alpha, c in _of_degree(HermiteExpansion(term.teacher, problem.teacher), degree).items():
            powers, factor = [0] * len(problem.overlaps), -term.weight * student * c
            for n, (t, k) in zip(alpha, problem.teacher_of, strict=True):
                powers[k] += n
                factor *= problem.mixing[0, t] ** n / sp.sqrt(sp.factorial(n))
            result[tuple(powers)] = result.get(tuple(powers), sp.S.Zero) + factor
    return {n: expand(c) for n, c in result.items() if not is_zero(c)}


def joint_exponent(problem: SphericalSgd, order: int, decide: Decide) -> Exponent:
    """The least degree, at zero overlap, of a term of R(o) that holds an overlap with a teacher's direction.

    Unlike the pair's exponent it counts the powers of positional overlaps that accompany it: m^j e^k has j + k.
    """
    teacher = {k for _, k in problem.teacher_of}
    if not problem.cross_risk.has_free(*(problem.overlaps[k] for k in teacher)):
        reason = "the population risk does not depend on the overlap with the target's direction, at any position"
        return Exponent(sp.oo, Certificate.EXACT, reason, order, (), Trapped.YES)
    seen: list[Coefficient] = []
    for k in range(1, order + 1):
        form = problem.form(k, positions=True, informed=True)
        level = _coefficients("joint", [form], decide)
        seen += level
        found = _conclude(k, level, order, tuple(seen))
        if found is not None:
            if found.value is None:
                return found
            mixed = any(p for n in form for i, p in enumerate(n) if i not in teacher)
            whole = problem.form(k, positions=True) if mixed and k == 2 else form
            return replace(found, trapped=trapped(k, whole, len(problem.overlaps), decide))
    return _nothing(order, seen)


def sample_complexity(exponent: Exponent) -> tuple[str, str]:
    """(law, text): how the number of steps to weak recovery grows with the dimension d."""
    k = exponent.value
    if k is None:
        return "unknown", f"no exponent was established up to order {exponent.order}"
    if k is sp.oo:
        return "never", "the risk holds no information on the direction: no number of samples suffices"
    if exponent.trapped is Trapped.YES:
        return (
            "never",
            "the start is a local minimum of the risk: SGD stays there whatever the number of samples",
        )
    condition = " where the start's sign agrees" if exponent.trapped is Trapped.DEPENDS_ON_START else ""
    if k == 1:
        return "d", "a number of samples proportional to d" + condition
    if k == 2:
        return "d log d", "a number of samples proportional to d log d, at a fixed learning rate" + condition
    return (
        "d^(k-1)",
        f"a number of samples proportional to d^{int(k) - 1}, at a learning rate ~ d^(-{sp.Rational(int(k) - 2, 2)})"
        + condition,
    )


def _coefficients(of: str, groups: Sequence[Mapping[tuple[int, ...], sp.Expr]], decide: Decide) -> list[Coefficient]:
    return [Coefficient(of, index, c, _decided(c, decide)) for g in groups for index, c in g.items()]


def _decided(value: sp.Expr, decide: Decide) -> Decision:
    """The decision; open where it needs the mean of a power of a generic activation, which no number stands for."""
    try:
        return decide(value)
    except NotImplementedError:
        if not value.has(GenericActivation, GenericOddActivation):
            raise
        return Decision(Sign.UNDECIDED, Certificate.UNDECIDED, "it holds the mean of a power of a generic activation")


def _conclude(k: int, level: list[Coefficient], order: int, seen: tuple[Coefficient, ...]) -> Exponent | None:
    """The exponent k if a coefficient of degree k is nonzero, undecided if that is open, None if all vanish."""
    first = next((c for c in level if c.decision.is_nonzero), None)
    if first is not None:
        return Exponent(k, first.decision.certificate, first.decision.reason, order, seen)
    open_ = next((c for c in level if c.decision.sign is Sign.UNDECIDED), None)
    if open_ is not None:
        reason = f"degree {k}, index {open_.index}: {open_.decision.reason}"
        return Exponent(None, Certificate.UNDECIDED, reason, order, seen)
    return None


def _nothing(order: int, seen: Sequence[Coefficient]) -> Exponent:
    reason = f"every coefficient up to order {order} vanishes; higher orders were not searched"
    return Exponent(None, Certificate.UNDECIDED, reason, order, tuple(seen))


def _with_trapping(exponent: Exponent, overlaps: int, decide: Decide) -> Exponent:
    k = exponent.value
    assert isinstance(k, int)
    form = {c.index: c.value for c in exponent.leading}
    return replace(exponent, trapped=trapped(k, form, overlaps, decide))
