"""Small problems of one-pass SGD on the sphere, built by hand, and their brute-force truth by sampling tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive.functions import He, attention
from derive.mechanisms.spherical_sgd import SphericalSgd, cross_terms

Array = NDArray[np.float64]

m, u = sp.symbols("m u", real=True)
gamma = sp.Symbol("gamma", positive=True)
f, y = sp.symbols("f y", real=True)
Z = z1, z2, z3, z4 = sp.symbols("z1:5", real=True)
HALF_SQUARE = sp.Lambda((f, y), (f - y) ** 2 / 2)


def h(n: int, x: sp.Expr) -> sp.Expr:
    """The orthonormal Hermite polynomial."""
    return He(n, x) / sp.sqrt(sp.factorial(n))


def tied(length: int, student: sp.Expr, target: sp.Expr, loss: sp.Lambda = HALF_SQUARE) -> SphericalSgd:
    """student in u = sum_i s_i / sqrt L; target in z1 .. zL; overlap m."""
    return SphericalSgd(
        student=(u,),
        teacher=Z[:length],
        teacher_of=tuple((i, 0) for i in range(length)),
        mixing=sp.ImmutableDenseMatrix(sp.ones(1, length) / sp.sqrt(length)),
        overlaps=(m,),
        gram=sp.ImmutableDenseMatrix([[1]]),
        positions=sp.ImmutableDenseMatrix(sp.zeros(length, 1)),
        loss=loss(student, target),
        learning_rate=gamma,
        cross=cross_terms(loss, (student,), (target,)),
    )


def landmarks(student: sp.Expr, target: sp.Expr, gram: sp.MatrixBase, loss: sp.Lambda = HALF_SQUARE) -> SphericalSgd:
    """student in u = <x, w>; target in z_k = <x, a_k> with Gram matrix `gram`; overlaps mu1 .. muK."""
    count = gram.rows
    return SphericalSgd(
        student=(u,),
        teacher=Z[:count],
        teacher_of=tuple((0, k) for k in range(count)),
        mixing=sp.ImmutableDenseMatrix([[1]]),
        overlaps=sp.symbols(f"mu1:{count + 1}", real=True),
        gram=sp.ImmutableDenseMatrix(gram),
        positions=sp.ImmutableDenseMatrix(sp.zeros(1, count)),
        loss=loss(student, target),
        learning_rate=gamma,
        cross=cross_terms(loss, (student,), (target,)),
    )


def untied(length: int, student: sp.Expr, target: sp.Expr, loss: sp.Lambda = HALF_SQUARE) -> SphericalSgd:
    """One weight vector for each token: a single-index problem with orthonormal landmarks."""
    return landmarks(student, target, sp.eye(length), loss)


def attention_pair(target: Sequence[sp.Expr], positional: bool) -> SphericalSgd:
    """Softmax attention of two tokens, all four outputs, half the squared norm; positions (e, -e)."""
    s = sp.symbols("s1:3", real=True)
    e = sp.Symbol("e", real=True)
    fs, ys = sp.symbols("f1:5", real=True), sp.symbols("y1:5", real=True)
    loss = sp.Lambda((*fs, *ys), sp.Add(*((a - b) ** 2 for a, b in zip(fs, ys, strict=True))) / 2)
    output = tuple(attention(sp.ImmutableDenseMatrix(s)))
    return SphericalSgd(
        student=s,
        teacher=Z[:2],
        teacher_of=((0, 0), (1, 0)),
        mixing=sp.ImmutableDenseMatrix(sp.eye(2)),
        overlaps=(m, e) if positional else (m,),
        gram=sp.ImmutableDenseMatrix(sp.eye(2 if positional else 1)),
        positions=sp.ImmutableDenseMatrix([[0, 1], [0, -1]] if positional else [[0], [0]]),
        loss=loss(*output, *target),
        learning_rate=gamma,
        cross=cross_terms(loss, output, tuple(target)),
    )


@dataclass
class Sampler:
    """The model itself in R^D: tokens, weights and landmarks as vectors, the gradient by the chain rule.

    `slopes(fields, teacher)` gives d loss / d phi of shape (p, n), `loss` the loss (n,), written in NumPy by hand.
    """

    overlaps: Sequence[float]
    gram: Array
    mixing: Array
    positions: Array
    teacher_of: Sequence[tuple[int, int]]
    loss: Callable[[Array, Array], Array]
    slopes: Callable[[Array, Array], Array]
    seed: int = 0
    rate: float = 0.5
    count: int = 400_000

    def run(self) -> dict[str, Array]:
        """Samples of the loss (n,), of N = sum_t D_t^2 (n,), of b (K, n), of c c^T (K, K, n).

        With |x_t|^2 = 1 and x_t . x_s = 0, true for large D, a step and the rescaling move o by -(rate / D) c,
        c = b + (rate / 2) N o, to leading order in 1/D.
        """
        rng = np.random.default_rng(self.seed)
        o = np.array(self.overlaps)
        d = len(o) + 2
        weights, marks = self._vectors(o, d)
        x = rng.normal(size=(self.mixing.shape[1], d, self.count)) / np.sqrt(d)
        shifts = self.positions @ marks / d  # (T, D): <p_t, w> = sum_k P_tk o_k
        seen = x + shifts[:, :, None]
        s = np.einsum("tdn,d->tn", seen, weights)
        phi = self.mixing @ s
        teacher = np.stack([marks[k] @ x[t] for t, k in self.teacher_of])
        by_token = self.mixing.T @ self.slopes(phi, teacher)
        gradient = np.einsum("tn,tdn->dn", by_token, seen)
        b = marks @ gradient - o[:, None] * (weights @ gradient)
        norm = np.sum(by_token**2, axis=0)
        c = b + self.rate / 2 * norm * o[:, None]
        return {"loss": self.loss(phi, teacher), "norm": norm, "increment": b, "square": c[:, None] * c[None, :]}

    def _vectors(self, o: Array, d: int) -> tuple[Array, Array]:
        """w and a_k in R^d with |w|^2 = d, <w, a_k>/d = o_k, <a_k, a_l>/d = G_kl."""
        whole = np.block([[np.ones((1, 1)), o[None]], [o[:, None], self.gram]])
        root = np.linalg.cholesky(whole)
        rows = np.zeros((len(whole), d))
        rows[:, : len(whole)] = root * np.sqrt(d)
        turn, _ = np.linalg.qr(np.random.default_rng(self.seed + 1).normal(size=(d, d)))
        rows = rows @ turn
        return rows[0], rows[1:]


def sampler(problem: SphericalSgd, at: dict[sp.Symbol, Any], loss: Any, slopes: Any, seed: int = 0) -> Sampler:
    """The sampler of a problem at given overlaps."""
    number = lambda a: np.array(a.tolist(), dtype=float)
    return Sampler(
        [float(at[s]) for s in problem.overlaps],
        number(problem.gram), number(problem.mixing), number(problem.positions), problem.teacher_of,
        loss, slopes, seed,
    )  # fmt: skip
