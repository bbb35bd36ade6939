"""The output term of attention-indexed models: a loss of the target's and the student's symmetric matrices of indices.

M(Sigma, m, q) = E min_h [loss(h0, h) + |h - z|_F^2/(4 Sigma)], where (h0, z) are jointly Gaussian: in orthonormal
coordinates h = sqrt(2) sum_j v_j E_j the pairs (v0_j, omega_j) are independent with covariance [[Q, m], [m, q]], and
|h - z|_F^2/(4 Sigma) = |v - omega|^2/(2 Sigma)  [arXiv:2509.24914].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import sympy as sp

from derive.expectation import Expectation
from derive.measures import Pushforward, standard_normal
from derive.mechanisms.potential import m, q, sigma
from derive.polynomial import expand
from derive.proximal import Confined, Moreau, MoreauSlope, closed_proximal, regions
from derive.rules import closed_form
from derive.rules.sameness import one_of_each
from derive.symmetric_indices import Indices, adapted_basis, invariant_directions
from derive.vector_proximal import VectorCurvature, VectorMoreau, VectorSlope

__all__ = ["IndexChannel"]

_u = sp.Symbol("u", real=True)
_FEW = 2  # variables up to which an average is an integral, above one over sampled points

Alone: TypeAlias = Callable[[sp.Lambda, sp.Expr, sp.Expr], sp.Expr]  # of loss, V, w
Together: TypeAlias = Callable[[sp.Lambda, sp.Expr, sp.Tuple, sp.Tuple], sp.Expr]  # of loss, V, w, starts


@dataclass(frozen=True)
class IndexChannel:
    """loss: of the entries of `target` and `student`, smooth; least where the student's labels are the target's.

    known_basis: an orthonormal basis of the coordinates, of which the loss depends on the first k, and k.
    """

    loss: sp.Expr
    target: Indices
    student: Indices
    known_basis: tuple[sp.ImmutableDenseMatrix, int] | None = None

    # ---- coordinates --------------------------------------------------------------------------------------
    @cached_property
    def _adapted(self) -> tuple[sp.ImmutableDenseMatrix, int]:
        if self.known_basis is not None:
            return self.known_basis
        directions = invariant_directions([self.loss], self.student.entries)
        return adapted_basis(self.student, directions)

    @property
    def coordinates(self) -> int:
        """k, the number of coordinates of the student's indices on which the loss depends."""
        return self._adapted[1]

    @cached_property
    def v0(self) -> tuple[sp.Symbol, ...]:
        """The coordinates of the target's indices."""
        return tuple(sp.Symbol(f"v0_{j + 1}", real=True) for j in range(len(self.target.entries)))

    @cached_property
    def v(self) -> tuple[sp.Symbol, ...]:
        """The student's coordinates, k of them."""
        return tuple(sp.Symbol(f"v_{j + 1}", real=True) for j in range(self.coordinates))

    @cached_property
    def whitened(self) -> sp.Expr:
        """The loss in v0 and v."""
        basis, k = self._adapted
        rest = [sp.S.Zero] * (len(self.student.entries) - k)
        entries = self.student.from_coordinates(basis, [*self.v, *rest])
        written = self.loss.xreplace({**entries, **self.target.from_coordinates(basis, self.v0)})
        apart = expand(written)
        return apart if apart.is_polynomial(*self.v, *self.v0) else one_of_each(written)

    @cached_property
    def parts(self) -> tuple[sp.Expr, ...] | None:
        """Losses of one coordinate each, of linear and quadratic pieces, that sum to the loss; None where it has none.

        Others may have several minima, which proximal operators of one variable do not look for.
        """
        own: list[list[sp.Expr]] = [[] for _ in self.v]
        for term in sp.Add.make_args(self.whitened):
            read = [j for j in range(len(self.v0)) if term.has_free(self.v0[j], *self.v[j : j + 1])]
            if len(read) > 1 or any(j >= len(self.v) for j in read):
                return None
            own[read[0] if read else 0].append(term)
        found = tuple(sp.Add(*terms) for terms in own)
        pieces = (regions(sp.Lambda(v, part), sigma, _u) for v, part in zip(self.v, found, strict=True))
        return None if any(p is None for p in pieces) else found

    def gradient_at_zero(self, label_variance: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """sum_j E d^2 loss/(d v0_j d v_j) and E |grad loss|^2 at v = 0; the former by Stein's lemma."""
        at_zero = dict.fromkeys(self.v, sp.S.Zero)
        slopes = [self.whitened.diff(v).xreplace(at_zero) for v in self.v]
        pull = sp.Add(*(a * f for a, f in zip(self.v0, slopes, strict=False))) / label_variance
        size = sp.Add(*(f**2 for f in slopes))
        return self._over_target(pull, label_variance), self._over_target(size, label_variance)

    def response_at_zero(self, label_variance: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        """The same of the Moreau envelope at step Sigma, with E of the trace of its second derivatives."""

        def pull(loss: sp.Lambda, V: sp.Expr, w: sp.Tuple, starts: sp.Tuple) -> sp.Expr:
            target = starts[1]
            return sp.Add(*(a * VectorSlope(loss, V, w, starts, j) for j, a in enumerate(target))) / label_variance

        def size(loss: sp.Lambda, V: sp.Expr, w: sp.Tuple, starts: sp.Tuple) -> sp.Expr:
            return sp.Add(*(VectorSlope(loss, V, w, starts, j) ** 2 for j in range(len(w))))

        def bend(loss: sp.Lambda, V: sp.Expr, w: sp.Tuple, starts: sp.Tuple) -> sp.Expr:
            return sp.Add(*(VectorCurvature(loss, V, w, starts, j, j) for j in range(len(w))))

        zero = sp.Tuple(*([sp.S.Zero] * self.coordinates))
        return (
            self._sampled(label_variance, pull, zero),
            self._sampled(label_variance, size, zero),
            self._sampled(label_variance, bend, zero),
        )

    def _over_target(self, expr: sp.Expr, label_variance: sp.Expr) -> sp.Expr:
        """E of a function of the target's coordinates."""
        g = tuple(sp.Symbol(f"g{j + 1}", real=True) for j in range(len(self.v0)))
        integrand = expr.xreplace({a: sp.sqrt(label_variance) * x for a, x in zip(self.v0, g, strict=True)})
        used = [x for x in g if integrand.has_free(x)]
        law = standard_normal(len(used))
        if len(used) > _FEW:
            return Expectation(integrand, used, Pushforward(law, used, (), used))
        return closed_form(sp.S(Expectation(integrand, used, law)))

    # ---- a quadratic loss in its place ---------------------------------------------------------------------
    def curvature(self, label_variance: sp.Expr) -> sp.Expr:
        """Half the mean second derivative of the loss in a coordinate where the student's are the target's."""
        matched = dict(zip(self.v, self.v0, strict=False))
        mean = sp.Add(*(self.whitened.diff(v, 2) for v in self.v)).xreplace(matched) / (2 * self.coordinates)
        return self._over_target(mean, label_variance)

    def quadratic(self, curvature: sp.Expr) -> IndexChannel:
        """The channel of the loss curvature * |v - v0|^2 in the same coordinates."""
        pairs = zip(self._along(self.student.entries), self._along(self.target.entries), strict=True)
        square = sp.Add(*((a - b) ** 2 for a, b in pairs))
        return replace(self, loss=curvature * square, known_basis=self._adapted)

    def exact(self) -> IndexChannel:
        """The channel of a student whose coordinates are the target's: the limit of little regularisation."""
        along = self._along(self.student.entries), self._along(self.target.entries)
        together = sp.Add(*(Confined(a, b, b) for a, b in zip(*along, strict=True)))
        return replace(self, loss=together, known_basis=self._adapted)

    def _along(self, entries: Sequence[sp.Symbol]) -> list[sp.Expr]:
        """The k coordinates of a matrix of indices."""
        basis, k = self._adapted
        return list(basis[:k, :] * sp.Matrix([h / c for h, c in zip(entries, self.student.scales, strict=True)]))

    # ---- averages -----------------------------------------------------------------------------------------
    def envelope(self, label_variance: sp.Expr) -> sp.Expr:
        """M(Sigma, m, q) for labels whose indices have variances Q = label_variance in the coordinates."""
        return self._average(label_variance, Moreau, VectorMoreau)

    def training_loss(self, label_variance: sp.Expr) -> sp.Expr:
        """The mean loss of a training sample: of the loss at Prox, M - |r|^2 Sigma/2."""

        def alone(loss: sp.Lambda, V: sp.Expr, w: sp.Expr) -> sp.Expr:
            return Moreau(loss, V, w) - V * MoreauSlope(loss, V, w) ** 2 / 2

        def together(loss: sp.Lambda, V: sp.Expr, w: sp.Tuple, starts: sp.Tuple) -> sp.Expr:
            slopes = (VectorSlope(loss, V, w, starts, j) for j in range(len(w)))
            return VectorMoreau(loss, V, w, starts) - V * sp.Add(*(r**2 for r in slopes)) / 2

        return self._average(label_variance, alone, together)

    def fresh_loss(self, label_variance: sp.Expr) -> sp.Expr:
        """The mean loss of a fresh sample."""
        return self._average(label_variance, lambda loss, _V, w: loss(w), lambda loss, _V, w, _starts: loss(*w))

    def squared_curvature(self, label_variance: sp.Expr) -> sp.Expr:
        """E |d r/d omega|_F^2, of the replicon."""

        def alone(loss: sp.Lambda, V: sp.Expr, w: sp.Expr) -> sp.Expr:
            return MoreauSlope(loss, V, _u).diff(_u).subs(_u, w) ** 2

        def together(loss: sp.Lambda, V: sp.Expr, w: sp.Tuple, starts: sp.Tuple) -> sp.Expr:
            k = len(w)
            return sp.Add(*(VectorCurvature(loss, V, w, starts, i, j) ** 2 for i in range(k) for j in range(k)))

        return self._average(label_variance, alone, together)

    def _average(self, Q: sp.Expr, alone: Alone, together: Together) -> sp.Expr:
        """E of a functional of the Moreau envelope, coordinate by coordinate where the loss comes apart."""
        if self.parts is None:
            return self._sampled(Q, together)
        total = sp.S.Zero
        for (part, j), count in self._kinds().items():
            g, e = sp.symbols("g e", real=True)
            loss = sp.Lambda(_u, part.xreplace({self.v0[j]: sp.sqrt(Q) * g, self.v[j]: _u}))
            here = closed_proximal(alone(loss, sigma, _field(Q, g, e)))
            total += count * closed_form(sp.S(Expectation(here, (g, e), standard_normal(2))))
        return total

    def _kinds(self) -> dict[tuple[sp.Expr, int], int]:
        """The parts that differ in more than their names, each with a coordinate that has it, and how often."""
        assert self.parts is not None
        first: dict[sp.Expr, int] = {}
        count: dict[sp.Expr, int] = {}
        for j, part in enumerate(self.parts):
            shape = part.xreplace({self.v0[j]: sp.Symbol("a", real=True), self.v[j]: _u})
            first.setdefault(shape, j)
            count[shape] = count.get(shape, 0) + 1
        return {(self.parts[j], j): count[shape] for shape, j in first.items()}

    def _sampled(self, Q: sp.Expr, together: Together, at_point: sp.Tuple | None = None) -> sp.Expr:
        """E over normal variables; what the target's indices alone make, the labels, is part of their law.

        at_point: omega, where it is not the student's.
        """
        g = tuple(sp.Symbol(f"g{j + 1}", real=True) for j in range(len(self.v0)))
        e = tuple(sp.Symbol(f"e{j + 1}", real=True) for j in range(len(self.v)))
        at = {a: sp.sqrt(Q) * x for a, x in zip(self.v0, g, strict=True)}
        labels = {
            f: sp.Symbol(f"y{i + 1}", real=True) for i, f in enumerate(_of_target(self.whitened, self.v0, self.v))
        }
        loss = sp.Lambda(self.v, self.whitened.xreplace(labels).xreplace(at))
        point = at_point or sp.Tuple(*(_field(Q, x, y) for x, y in zip(g, e, strict=False)))
        starts = sp.Tuple(point, sp.Tuple(*(at[a] for a in self.v0[: len(self.v)])))
        integrand = together(loss, sigma, point, starts)
        read = set().union(integrand.free_symbols, *(f.free_symbols for f in labels))
        inputs = [x for a, x in zip((*self.v0, *e), (*g, *e), strict=True) if x in read or a in read]
        definitions = [(y, f.xreplace(at)) for f, y in labels.items()]
        used = [s for s in (*labels.values(), *g, *e) if integrand.has_free(s)]
        return Expectation(integrand, used, Pushforward(standard_normal(len(inputs)), inputs, definitions, used))


def _of_target(expr: sp.Expr, v0: Sequence[sp.Symbol], v: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """The largest functions in `expr` of the target's coordinates alone."""
    found: list[sp.Expr] = []

    def visit(e: sp.Basic) -> None:
        if isinstance(e, sp.Function) and e.has_free(*v0) and not e.has_free(*v):
            if e not in found:
                found.append(e)
            return
        for a in e.args:
            visit(a)

    visit(expr)
    return sorted(found, key=sp.default_sort_key)


def _field(Q: sp.Expr, g: sp.Expr, e: sp.Expr) -> sp.Expr:
    """omega = (m/sqrt Q) g + sqrt(q - m^2/Q) e, of variance q and covariance m with v0 = sqrt(Q) g."""
    return m / sp.sqrt(Q) * g + sp.sqrt(q - m**2 / Q) * e
