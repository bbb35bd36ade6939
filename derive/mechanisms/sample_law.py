"""What one sample of a data set shows of vectors that were trained on it, and averages of functions of that.

The sample X = signal xi^T + Z, Z in R^(L x d) with independent N(0, 1) entries, seen along orthogonal directions of
weight space: X e = <xi, e> signal + x_e + rho_e / alpha. Here x_e ~ N(0, |e|^2 I_L) are independent Gaussian vectors,
and rho_e is the sample's own share in a direction that is the noise of a gradient on these n = alpha d samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import sympy as sp

from derive.expectation import Expectation, expectations
from derive.measures import Gaussian, Pushforward
from derive.mechanisms.linear_forms import Form, Forms, linear_parts
from derive.polynomial import expand, generators
from derive.rules import closed_form, may_close
from derive.rules.parameters import directions_out

__all__ = ["SIGNAL", "Case", "Direction", "SampleLaw", "State", "token_unit"]

_QUADRATURE_DIM = 2

TokenForm: TypeAlias = tuple[sp.Expr, ...]
"""The coefficients c of a linear form sum_l c_l u_l of tokens."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Case:
    """With this probability a sample has the label and the signal (L,): its tokens have the means signal_l xi."""

    probability: sp.Expr
    label: sp.Expr
    signal: tuple[sp.Expr, ...]


@dataclass(frozen=True)
class Direction:
    """A direction of weight space, orthogonal to the others; `square` is |e|^2."""

    name: str
    square: sp.Expr = sp.S.One


SIGNAL = Direction("xi")
"""The direction of the signal, |xi| = 1."""


@dataclass(frozen=True)
class State:
    """A vector w = sum_e w_e e by the coordinates that are not zero; `square` is |w|^2, by its name if it has one."""

    coordinates: tuple[tuple[Direction, sp.Expr], ...]
    square: sp.Expr

    @classmethod
    def of(cls, coordinates: Mapping[Direction, sp.Expr]) -> State:
        """The vector of these coordinates."""
        kept = tuple((e, sp.S(a)) for e, a in coordinates.items() if a != 0)
        return cls(kept, sp.Add(*(a**2 * e.square for e, a in kept)))

    @property
    def is_direction(self) -> bool:
        """Whether this is a basis vector e."""
        return len(self.coordinates) == 1 and bool(self.coordinates[0][1] == 1)

    def along(self, direction: Direction) -> sp.Expr:
        """w_e."""
        return next((a for e, a in self.coordinates if e == direction), sp.S.Zero)

    def inner(self, other: State) -> sp.Expr:
        """<w, v> = sum_e |e|^2 w_e v_e."""
        if self == other:
            return self.square
        return sp.Add(*(a * other.along(e) * e.square for e, a in self.coordinates))


BaseKey: TypeAlias = tuple[State, TokenForm]
"""The Gaussian variable c . (Z w)."""


def token_unit(length: int, token: int) -> TokenForm:
    """The form u_token."""
    return tuple(sp.S(int(i == token)) for i in range(length))


@dataclass
class SampleLaw:
    """The law of one sample in one case: definitions, in order, over Gaussian variables x_e . c.

    `ratio`: alpha, samples per dimension. `shares`: rho_e by direction, entry by token, of the directions that are
    noises of gradients on this data.
    """

    case: Case
    ratio: sp.Expr
    shares: dict[Direction, Callable[[int], sp.Expr]] = field(default_factory=dict)
    _base: dict[BaseKey, sp.Symbol] = field(default_factory=dict)
    _definitions: dict[sp.Symbol, sp.Expr] = field(default_factory=dict)
    _known: dict[sp.Expr, sp.Symbol] = field(default_factory=dict)
    _affine: dict[sp.Symbol, sp.Expr] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return len(self.case.signal)

    @property
    def symbols(self) -> frozenset[sp.Symbol]:
        """The Gaussian variables and what is defined by them."""
        return frozenset([*self._base.values(), *self._definitions])

    # ---- what is seen -------------------------------------------------------------------------------------
    def gaussian(self, state: State, form: TokenForm) -> sp.Symbol:
        """c . (Z w) ~ N(0, |w|^2 |c|^2)."""
        key = (state, form)
        if key not in self._base:
            self._base[key] = sp.Dummy(f"x{len(self._base) + 1}", real=True)
        return self._base[key]

    def field(self, state: State, form: TokenForm) -> sp.Expr:
        """c . (X w), as a symbol that is defined here."""
        if not state.coordinates:
            return sp.S.Zero
        signal = sp.Add(*(c * s for c, s in zip(form, self.case.signal, strict=True)))
        own = (
            a * sp.Add(*(c * self.shares[e](i) for i, c in enumerate(form) if c != 0)) / self.ratio
            for e, a in state.coordinates
            if e in self.shares
        )
        return self.define(sp.Add(self.gaussian(state, form), state.along(SIGNAL) * signal, *own))

    def define(self, e: sp.Expr) -> sp.Expr:
        """A symbol for `e`, the same for equal ones; parameters and symbols stay as they are."""
        if e.is_Symbol or not self._reads(e):
            return e
        if e not in self._known:
            symbol = sp.Dummy(f"s{len(self._definitions) + 1}", real=True)
            self._known[e], self._definitions[symbol] = symbol, e
            written = self._resolved(e)
            if written is not None and linear_parts(written, frozenset(self._base.values())) is not None:
                self._affine[symbol] = written
        return self._known[e]

    def reads(self, e: sp.Expr) -> set[Direction]:
        """The directions whose Gaussian fields `e` depends on."""
        used = self._needed(e)
        return {e for (state, _), x in self._base.items() if x in used for e, _ in state.coordinates}

    def _reads(self, e: sp.Expr) -> bool:
        return not e.free_symbols.isdisjoint(self.symbols)

    def _resolved(self, e: sp.Expr) -> sp.Expr | None:
        """`e` in the Gaussian variables alone, None where definitions that are not affine stand between."""
        inside = e.free_symbols & self._definitions.keys()
        return e.xreplace({s: self._affine[s] for s in inside}) if inside <= self._affine.keys() else None

    def _needed(self, e: sp.Expr) -> set[sp.Symbol]:
        needed = set(e.free_symbols)
        for s in reversed(self._definitions):
            if s in needed:
                needed |= self._definitions[s].free_symbols
        return needed

    # ---- averages -----------------------------------------------------------------------------------------
    def mean(self, e: sp.Expr) -> sp.Expr:
        """E e: closed, or over at most two Gaussian variables; otherwise over the law of its definitions."""
        found = self.low_dimensional(e)
        return self.pushed(e) if found is None else found

    def low_dimensional(self, e: sp.Expr) -> sp.Expr | None:
        """E e over at most two Gaussian variables, forms that `e` reads; None where they are more."""
        written = self._resolved(e)
        return None if written is None else self._over_forms(written)

    def pushed(self, e: sp.Expr) -> sp.Expr:
        """E e as the mean of a quantity that is computed from Gaussian variables, one definition after the other."""
        needed = self._needed(e)
        base, fields = _by_directions({key: x for key, x in self._base.items() if x in needed})
        law = Gaussian([0] * len(base), _matrix(list(base), _covariance))
        value = sp.Dummy("value", real=True)
        inside = [(s, d) for s, d in self._definitions.items() if s in needed]
        return Expectation(
            value, [value], Pushforward(law, list(base.values()), [*fields, *inside, (value, e)], [value])
        )

    def _over_forms(self, e: sp.Expr) -> sp.Expr | None:
        """E e over the linear forms of Gaussian variables that `e` reads, those of polynomials integrated."""
        forms = Forms(frozenset(self._base.values()))
        rewritten = forms.rewrite(e)
        if not forms.found:
            return rewritten
        inside = set().union(*(g.free_symbols for g in generators(rewritten) if not g.is_Symbol))
        if sum(form.symbol in inside for form in forms.found) > _QUADRATURE_DIM:
            return None
        keys = {x: key for key, x in self._base.items()}

        def covariance(a: Form, b: Form) -> sp.Expr:
            pairs = ((x, y) for x in a.coefficients for y in b.coefficients)
            return expand(
                sp.Add(*(a.coefficients[x] * b.coefficients[y] * _covariance(keys[x], keys[y]) for x, y in pairs))
            )

        law = Gaussian([0] * len(forms.found), _matrix(forms.found, covariance))
        average = Expectation(rewritten, [form.symbol for form in forms.found], law)
        closed = closed_form(average) if may_close(average) else average
        if not closed.has(Expectation):
            return expand(closed)
        fewer = directions_out(average)
        average = average if fewer is None else fewer
        average = _term_by_term(average) if isinstance(average, Expectation) else average
        if any(len(a.variables) > _QUADRATURE_DIM for a in expectations(average)):
            return None
        return expand(average.xreplace({a: closed_form(a) for a in expectations(average) if may_close(a)}))


def _term_by_term(e: Expectation) -> sp.Expr:
    """E[sum_k c_k f_k(x)] = sum_k c_k E f_k(x), so that equal averages of different tokens and cases meet."""
    parts: dict[sp.Expr, list[sp.Expr]] = {}
    for term in sp.Add.make_args(expand(e.integrand)):
        coefficient, f = term.as_independent(*e.variables, as_Add=False)
        parts.setdefault(f, []).append(coefficient)
    return sp.Add(*(sp.Add(*c) * _shifted(Expectation(f, e.variables, e.measure)) for f, c in parts.items()))


def _shifted(e: sp.Expr) -> sp.Expr:
    """E f(x + c) as an average of f under a law of mean c, where f reads nothing else of x."""
    if not isinstance(e, Expectation) or len(e.variables) > 1:
        return e
    (x,) = e.variables
    readers = [g for g in generators(e.integrand) if g.has_free(x)]
    if not all(isinstance(g, sp.Function | sp.exp) for g in readers):
        return e
    read = {a: linear_parts(a, frozenset([x])) for g in readers for a in g.args if a.has_free(x)}
    shifts = {None if p is None else p[1] / p[0][x] for p in read.values()}
    if len(shifts) != 1 or None in shifts:
        return e
    f = e.integrand.xreplace({a: p[0][x] * x for a, p in read.items() if p is not None})
    return Expectation(f, [x], Gaussian([e.measure.mean[0] + shifts.pop()], e.measure.cov))


def _matrix(items: Sequence[_Item], entry: Callable[[_Item, _Item], sp.Expr]) -> sp.ImmutableDenseMatrix:
    """The symmetric matrix of entry(a, b)."""
    upper = {(i, j): entry(items[i], items[j]) for i in range(len(items)) for j in range(i, len(items))}
    return sp.ImmutableDenseMatrix(len(items), len(items), lambda i, j: upper[min(int(i), int(j)), max(int(i), int(j))])


def _covariance(a: BaseKey, b: BaseKey) -> sp.Expr:
    return a[0].inner(b[0]) * sp.Add(*(c * d for c, d in zip(a[1], b[1], strict=True)))


def _by_directions(
    variables: Mapping[BaseKey, sp.Symbol],
) -> tuple[dict[BaseKey, sp.Symbol], list[tuple[sp.Symbol, sp.Expr]]]:
    """Independent Gaussian variables along single directions, and definitions of the given ones by them."""
    forms = list(dict.fromkeys(form for _, form in variables))
    reduced, pivots = sp.ImmutableDenseMatrix(forms).T.rref()
    basis = [forms[p] for p in pivots]
    base = {key: x for key, x in variables.items() if key[1] in basis and key[0].is_direction}

    def along(e: Direction, form: TokenForm) -> sp.Symbol:
        return base.setdefault((State.of({e: sp.S.One}), form), sp.Dummy(f"y{len(base) + 1}", real=True))

    definitions = []
    for (state, form), x in variables.items():
        if (state, form) not in base:
            column = forms.index(form)
            parts = [(reduced[i, column], f) for i, f in enumerate(basis)]
            definitions.append((x, sp.Add(*(a * c * along(e, f) for e, a in state.coordinates for c, f in parts if c))))
    return base, definitions
