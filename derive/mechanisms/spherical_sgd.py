"""One-pass SGD of a vector on the sphere, of a loss that sees the data through a few Gaussian fields.

Data: T isotropic Gaussian tokens x_t in R^D of variance 1/D. Landmarks a_k with Gram matrix G, overlaps
o_k = <w, a_k>/D, |w|^2 = D. Teacher fields <x_t, a_k>, student fields phi = A s with s_t = <x_t, w> + sum_k P_tk o_k.
Everything follows from the loss as a function of these fields, by Gaussian calculus (arXiv:2506.02651 treats
the sequence single-index case).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import sympy as sp

from derive.expectation import Expectation
from derive.gaussian import dual_hermite
from derive.hermite import multi_indices
from derive.losses import without_jumps
from derive.measures import Gaussian
from derive.polynomial import expand, is_zero
from derive.rules import compact, may_close, reduced

__all__ = ["CrossTerm", "SphericalSgd", "cross_terms"]


@dataclass(frozen=True)
class CrossTerm:
    """A summand weight * student * teacher of a loss: factors of the student's and of the teacher's fields."""

    weight: sp.Expr
    student: sp.Expr
    teacher: sp.Expr


def cross_terms(
    loss: sp.Lambda, outputs: tuple[sp.Expr, ...], labels: tuple[sp.Expr, ...]
) -> tuple[CrossTerm, ...] | None:
    """The summands of the loss that hold both an output and a label, if the loss is a polynomial of them."""
    f, y = loss.variables[: len(outputs)], loss.variables[len(outputs) :]
    polynomial = loss.expr.as_poly(*f, *y)
    if polynomial is None:
        return None
    found: dict[tuple[sp.Expr, sp.Expr], sp.Expr] = {}
    for powers, weight in polynomial.terms():
        student = sp.Mul(*(e**n for e, n in zip(outputs, powers[: len(f)], strict=True)))
        teacher = sp.Mul(*(e**n for e, n in zip(labels, powers[len(f) :], strict=True)))
        if any(powers[: len(f)]) and any(powers[len(f) :]):
            key = (student, teacher)
            found[key] = found.get(key, sp.S.Zero) + weight
    return tuple(CrossTerm(w, *key) for key, w in found.items())


@dataclass(frozen=True)
class SphericalSgd:
    """The problem in its fields.

    student: fields phi (p,); teacher: fields (q,), teacher_of[j] = (t, k) says that field j is <x_t, a_k>;
    mixing A (p, T); overlaps o (K,); gram G (K, K); positions P (T, K); loss: expression in all fields;
    cross: the summands of the loss that couple them, None when it is not a polynomial of output and label.
    """

    student: tuple[sp.Symbol, ...]
    teacher: tuple[sp.Symbol, ...]
    teacher_of: tuple[tuple[int, int], ...]
    mixing: sp.ImmutableDenseMatrix
    overlaps: tuple[sp.Symbol, ...]
    gram: sp.ImmutableDenseMatrix
    positions: sp.ImmutableDenseMatrix
    loss: sp.Expr
    learning_rate: sp.Expr
    cross: tuple[CrossTerm, ...] | None = None

    # ---- laws -------------------------------------------------------------------------------------------
    @property
    def _overlap_vector(self) -> sp.ImmutableDenseMatrix:
        return sp.ImmutableDenseMatrix(list(self.overlaps))

    @property
    def _shift(self) -> sp.ImmutableDenseMatrix:
        return self.mixing * self.positions * self._overlap_vector

    def _law(self, teacher_of: tuple[tuple[int, int], ...]) -> Gaussian:
        """Law of (phi, teacher fields): Cov(s_t, <x_t, a_k>) = o_k, Cov(<x_t, a_k>, <x_t, a_l>) = G_kl."""
        q = len(teacher_of)
        cross = sp.Matrix(
            len(self.student),
            q,
            lambda i, j: self.mixing[i, teacher_of[j][0]] * self.overlaps[teacher_of[j][1]],
        )
        own = sp.Matrix(
            q,
            q,
            lambda i, j: self.gram[teacher_of[i][1], teacher_of[j][1]] if teacher_of[i][0] == teacher_of[j][0] else 0,
        )
        cov = sp.BlockMatrix([[self.mixing * self.mixing.T, cross], [cross.T, own]]).as_explicit()
        return Gaussian([*self._shift, *[0] * q], cov)

    @property
    def fields(self) -> tuple[sp.Symbol, ...]:
        return (*self.student, *self.teacher)

    @property
    def law(self) -> Gaussian:
        return self._law(self.teacher_of)

    def _mean(self, f: sp.Expr) -> sp.Expr:
        return reduced(Expectation(f, self.fields, self.law))

    # ---- population risk and flow -----------------------------------------------------------------------
    @cached_property
    def risk(self) -> sp.Expr:
        """R(o) = E loss."""
        return (
            self.cross_risk if self.cross is None else self._mean(expand(self.loss - self._coupled)) + self.cross_risk
        )

    @cached_property
    def cross_risk(self) -> sp.Expr:
        """E of the summands of the loss that couple output and label, taken whole: a symmetry may remove them.

        The rest of the risk depends on positional overlaps alone. All of the risk where the loss does not separate.
        """
        return self._mean(self.loss if self.cross is None else self._coupled)

    @property
    def _coupled(self) -> sp.Expr:
        return sp.Add(*(term.weight * term.student * term.teacher for term in self.cross or ()))

    @cached_property
    def field_gradient(self) -> tuple[sp.Expr, ...]:
        """d loss / d phi_i. Raises `TaskError` when it holds point masses (a student with jumps)."""
        return without_jumps([self.loss.diff(s) for s in self.student], "student")

    @cached_property
    def gradient(self) -> tuple[sp.Expr, ...]:
        """dR/do_k, by Bonnet's and Price's theorems where expectations remain."""
        return tuple(reduced(self.risk.diff(o).doit()) for o in self.overlaps)

    @cached_property
    def gradient_norm(self) -> sp.Expr:
        """V(o) = E sum_t (d loss/d s_t)^2 = E sum_ij (A A^T)_ij d_i loss d_j loss."""
        return self._mean(self._squared_gradient)

    @property
    def _squared_gradient(self) -> sp.Expr:
        weights = self.mixing * self.mixing.T
        d = self.field_gradient
        return sp.Add(*(weights[i, j] * d[i] * d[j] for i, j in product(range(len(d)), repeat=2)))

    def drift(self, noise: sp.Expr) -> tuple[sp.Expr, ...]:
        """do/dtau = -(G - o o^T) grad R - (gamma/2) V o, with V given as `noise`."""
        o = self._overlap_vector
        pull = -(self.gram - o * o.T) * sp.ImmutableDenseMatrix(list(self.gradient))
        return tuple(pull[k] - self.learning_rate * noise * o[k] / 2 for k in range(len(self.overlaps)))

    @cached_property
    def _increments(self) -> tuple[tuple[sp.Expr, ...], tuple[sp.Symbol, ...], Gaussian]:
        """b_k = sum_t D_t (<x_t, a_k> + (P G)_tk) - o_k sum_t D_t s_t of each landmark, its variables, their law."""
        count, tokens = len(self.overlaps), self.mixing.cols
        known = dict(zip(self.teacher_of, self.teacher, strict=True))
        pairs = [(t, k) for t in range(tokens) for k in range(count)]
        field = {p: known.get(p, sp.Dummy(f"z{p[0]}_{p[1]}", real=True)) for p in pairs}
        d = self.field_gradient
        by_token = [sp.Add(*(self.mixing[i, t] * d[i] for i in range(len(d)))) for t in range(tokens)]
        radial = sp.Add(*(d[i] * self.student[i] for i in range(len(d))))
        places = self.positions * self.gram
        b = tuple(
            sp.Add(*(by_token[t] * (field[t, k] + places[t, k]) for t in range(tokens))) - o * radial
            for k, o in enumerate(self.overlaps)
        )
        return b, (*self.student, *(field[p] for p in pairs)), self._law(tuple(pairs))

    def mean_increment(self, k: int) -> sp.Expr:
        """E b_k, which Stein's lemma makes equal to [(G - o o^T) grad R]_k: a second road to the drift."""
        b, variables, law = self._increments
        return reduced(Expectation(b[k], variables, law))

    def noise(self, k: int, l: int) -> sp.Expr:
        """S_kl = Cov(c_k, c_l), c_k = b_k + (gamma/2) o_k sum_ij (A A^T)_ij d_i loss d_j loss.

        One step moves o_k by -(gamma/D) c_k, so the overlaps fluctuate by sqrt(gamma/D) S^(1/2) dB.
        """
        b, variables, law = self._increments
        step = [b[i] + self.learning_rate * self.overlaps[i] * self._squared_gradient / 2 for i in (k, l)]
        drift = self.drift(self.gradient_norm)
        square = Expectation(step[0] * step[1], variables, law)
        # many one-dimensional terms of a smooth activation are worth less than the one integral
        return (reduced(square) if may_close(square) else compact(square)) - drift[k] * drift[l]

    # ---- expansion at zero overlap ----------------------------------------------------------------------
    def form(
        self,
        degree: int,
        *,
        positions: bool = False,
        at: Mapping[sp.Symbol, sp.Expr] | None = None,
        informed: bool = False,
    ) -> dict[tuple[int, ...], sp.Expr]:
        """{n: c_n} with -R(o) = const + sum_n c_n o^n, |n| = degree, at zero overlap.

        exp(sum_j c_j d_phi_j + sum_jk c_jk d_phi_j d_z_k) with c = A P o (0 unless `positions`) and c = A o; the
        derivatives as Hermite polynomials of the fields' own covariances  [Mehler's formula]. `at`: positional
        overlaps held at these values, while the expansion is in the others. `informed`: only terms that hold an
        overlap with a teacher's direction.
        """
        result: dict[tuple[int, ...], sp.Expr] = {}
        place = sp.Matrix([(at or {}).get(o, sp.S.Zero) for o in self.overlaps])
        shift = tuple(self.mixing * self.positions * place)
        for powers, weight, rows, columns in self._pairings(degree, positions):
            if informed and not any(columns):
                continue
            c = weight * self._coupling(rows, columns, shift)
            if c != 0:
                result[powers] = result.get(powers, sp.S.Zero) + c
        return {n: expand(c) for n, c in result.items() if not is_zero(c)}

    def _links(self, positions: bool) -> list[tuple[int, int | None, sp.Expr, int]]:
        """(student field, teacher field or None for a shift, weight, overlap) of each term of the exponent."""
        fields = range(len(self.student))
        links: list[tuple[int, int | None, sp.Expr, int]] = [
            (i, j, self.mixing[i, t], k) for i in fields for j, (t, k) in enumerate(self.teacher_of)
        ]
        shift = self.mixing * self.positions
        if positions:
            links += [(i, None, shift[i, k], k) for i in fields for k in range(len(self.overlaps))]
        return [link for link in links if link[2] != 0]

    def _pairings(
        self, degree: int, positions: bool
    ) -> Iterator[tuple[tuple[int, ...], sp.Expr, tuple[int, ...], tuple[int, ...]]]:
        """(powers of o, weight, orders of differentiation in phi, in z) of each monomial of the exponential."""
        links = self._links(positions)
        for counts in multi_indices(len(links), degree):
            powers, rows, columns = [0] * len(self.overlaps), [0] * len(self.student), [0] * len(self.teacher)
            weight = sp.S.One
            for (i, j, c, k), n in zip(links, counts, strict=True):
                powers[k] += n
                rows[i] += n
                if j is not None:
                    columns[j] += n
                weight *= c**n / sp.factorial(n)
            yield tuple(powers), weight, tuple(rows), tuple(columns)

    def _coupling(self, rows: tuple[int, ...], columns: tuple[int, ...], shift: tuple[sp.Expr, ...]) -> sp.Expr:
        """-E[d^rows d^columns loss], phi and z independent, with their own covariances and means `shift` and 0."""
        count = len(self.student)
        cov = self.law.cov
        own, other = cov[:count, :count], cov[count:, count:]
        h, k = dual_hermite(rows, self.student, own), dual_hermite(columns, self.teacher, other)
        h = h.xreplace({v: v - c for v, c in zip(self.student, shift, strict=True)})
        if self.cross is None or not any(columns):
            joint = Gaussian([*shift, *[0] * len(self.teacher)], sp.diag(own, other))
            return -reduced(Expectation(self.loss * h * k, self.fields, joint))
        student, teacher = Gaussian(shift, own), Gaussian([0] * len(self.teacher), other)
        total = sp.S.Zero
        for term in self.cross:
            factor = reduced(Expectation(term.student * h, self.student, student))
            if factor != 0:
                total -= term.weight * factor * reduced(Expectation(term.teacher * k, self.teacher, teacher))
        return total
