"""One-pass spherical SGD exactly in law at a cost that does not depend on the dimension: the overlaps alone move.

In an orthonormal frame f_1 .. f_K of the landmarks, w/|w| = sum_k c_k f_k + r v with v uniform and orthogonal to
the frame, and a token is <x_t, f_k> = alpha_tk, <x_t, v> = zeta_t, all N(0, 1), plus a vector independent of
everything the step reads. With the fields phi = A s and D_i = d loss/d phi_i a step of length h = lr/D is
    c_k <- c_k - h sum_i D_i (A (alpha + P))_ik,   r <- r - h sum_i D_i (A zeta)_i,
    and adds to the squared norm h^2 |A^T D|^2 chi^2 with D - K - 1 degrees of freedom; then all is divided by the norm.
An untied student is the case of one token in L d dimensions with L landmarks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from numba import njit, types
from numpy.typing import NDArray

from derive.mechanisms.spherical_sgd import SphericalSgd
from solve.scalar import SIGNATURE, compile_scalar
from verify.simulation import Values

__all__ = ["Path", "Projection", "project"]

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Path:
    """Overlaps (n_steps, n_landmarks) after the steps asked for, nan where lost; `escape`: a step, nan for none."""

    overlaps: Array
    escape: float


@dataclass(frozen=True, eq=False)
class Projection:
    """The chain of the overlaps o = frame @ c at given parameters, for T tokens, p fields and q teacher fields.

    frame: (n_landmarks, K), rows a_k/sqrt D in the frame. rate: h. freedom: D - K - 1, of chi^2.
    mixing: (K + 1, p, n), the fields' parts along each direction, then along v, from `counts[k]` normals each.
    shift: (K + 1, p), the positions' parts A P. metric: (p, p), A A^T. token: (q,), weight: (q, K), the teacher
    field j is sum_k weight_jk alpha_(token_j, k). slopes: machine code for D at (teacher fields, fields, values).
    """

    frame: Array
    rate: float
    freedom: float
    mixing: Array
    counts: NDArray[np.int64]
    shift: Array
    metric: Array
    token: NDArray[np.int64]
    weight: Array
    slopes: Callable[..., None]
    values: Array

    @property
    def rank(self) -> int:
        """K, the dimension of the span of the landmarks."""
        return int(self.frame.shape[1])

    def prepared(self, overlaps: Sequence[float]) -> Array:
        """The state (K + 1,) of given overlaps; raises `ValueError` where no unit vector has them."""
        o = np.asarray(overlaps, dtype=np.float64)
        c = np.linalg.lstsq(self.frame, o, rcond=None)[0]
        squared = float(c @ c)
        if squared > 1 + 1e-12 or not np.allclose(self.frame @ c, o, rtol=0, atol=1e-9):
            raise ValueError(f"No vector on the sphere has the overlaps {o.tolist()} with these landmarks.")
        return np.append(c, math.sqrt(max(0.0, 1 - squared)))

    def drawn(self, rng: np.random.Generator, avoided: Sequence[int] = ()) -> Array:
        """The state (K + 1,) of a uniform unit vector, or of one orthogonal to the landmarks `avoided`."""
        c = rng.standard_normal(self.rank)
        for direction in _basis(self.frame[list(avoided)]):
            c -= (direction @ c) * direction
        rest = rng.chisquare(self.freedom + 1)
        return np.append(c, math.sqrt(rest)) / math.sqrt(float(c @ c) + rest)

    def run(
        self,
        rng: np.random.Generator,
        state: Array,
        steps: NDArray[np.int64],
        threshold: float | None = None,
        limit: int = 0,
    ) -> Path:
        """Run from `state` (K + 1,) through the last of the rising `steps`.

        With a threshold on, until the norm of the overlaps has reached it, for at most `limit` steps.
        """
        record = np.full((len(steps), len(self.frame)), np.nan)
        escape = _machine_code()(
            rng,
            self.slopes,
            np.array(state, dtype=np.float64),
            self.frame,
            self.rate,
            self.freedom,
            self.mixing,
            self.counts,
            self.shift,
            self.metric,
            self.token,
            self.weight,
            self.values,
            np.asarray(steps, dtype=np.int64),
            record,
            math.inf if threshold is None else threshold,
            max(limit, int(max(steps, default=0))),
        )
        return Path(record, float(escape) if escape >= 0 else math.nan)


def project(
    problem: SphericalSgd, slopes: Sequence[sp.Expr], parameters: Values, rate: float, dimension: int
) -> Projection:
    """The chain of `problem` for steps of length rate = lr/dimension, w in R^dimension.

    slopes: D_i = d loss/d phi_i in the teacher's and the student's fields and the parameters.
    Raises `ValueError` for slopes that all vanish, landmarks whose Gram matrix is not one, a rate that is not
    positive, or a dimension too small for the landmarks; `NotImplementedError` for a function without machine code.
    """
    if all(s == 0 for s in slopes):
        raise ValueError("The loss does not depend on the student's fields: there is nothing to train.")
    number = functools.partial(_numbers, parameters=parameters)
    mixing, gram = number(problem.mixing), number(problem.gram)
    token, landmark = np.array(problem.teacher_of, dtype=np.int64).reshape(-1, 2).T
    frame = _factor(gram, first=landmark)
    if not rate > 0 or dimension < frame.shape[1] + 2:
        raise ValueError(
            f"{frame.shape[1]} landmarks need a dimension of {frame.shape[1] + 2} or more and a positive rate, got "
            f"{dimension} and {rate}."
        )
    metric = mixing @ mixing.T
    along, counts = _parts(mixing, _factor(metric), frame, landmark)
    shift = np.vstack([(mixing @ number(problem.positions) @ frame).T, np.zeros(len(mixing))])
    code = compile_scalar(tuple(slopes), (*problem.teacher, *problem.student, *parameters))
    values = np.array([float(v) for v in parameters.values()])
    freedom = float(dimension - frame.shape[1] - 1)
    plain = np.ascontiguousarray
    _machine_code()  # before threads ask for it
    return Projection(
        *(plain(frame), rate, freedom, along, counts, plain(shift), plain(metric)),
        *(plain(token), plain(frame[landmark]), code, values),
    )


def _numbers(matrix: sp.MatrixBase, parameters: Values) -> Array:
    known = {s: sp.Float(v, 30) for s, v in parameters.items()}
    return np.array(matrix.xreplace(known).tolist(), dtype=np.float64).reshape(matrix.shape)


def _parts(mixing: Array, root: Array, frame: Array, landmark: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """`mixing` and `counts` of a `Projection`: T normals along a direction that the teacher sees, else rank(A)."""
    seen = np.append(np.any(frame[landmark] != 0, axis=0), False)
    factors = [mixing if s else root for s in seen]
    along = np.zeros((len(seen), len(mixing), max(f.shape[1] for f in factors)))
    for k, f in enumerate(factors):
        along[k, :, : f.shape[1]] = f
    return along, np.array([f.shape[1] for f in factors], dtype=np.int64)


def _factor(gram: Array, first: Sequence[int] | NDArray[np.int64] = ()) -> Array:
    """C (n, rank) with C C^T = gram, the rows in `first` in the first columns  [Cholesky, zero pivots left out]."""
    n = len(gram)
    order = dict.fromkeys([*map(int, first), *range(n)])
    factor = np.zeros((n, 0))
    for k in order:
        rest = gram[:, k] - factor @ factor[k]
        if rest[k] > 1e-10 * gram[k, k]:
            factor = np.column_stack([factor, rest / math.sqrt(rest[k])])
    if not np.allclose(factor @ factor.T, gram, rtol=0, atol=1e-8 * np.abs(gram).max(initial=1)):
        raise ValueError(f"The landmarks cannot have the Gram matrix {gram.tolist()}: it has a negative eigenvalue.")
    return factor


def _basis(rows: Array) -> list[Array]:
    """An orthonormal basis of the span of rows (n, K)."""
    found: list[Array] = []
    for row in rows:
        rest = row.copy()
        for direction in [*found, *found]:
            rest -= (direction @ rest) * direction
        length = float(np.linalg.norm(rest))
        if length > 1e-10 * float(np.linalg.norm(row)):
            found.append(rest / length)
    return found


# ---------------------------------------------------------------- machine code

_inlined = njit(error_model="numpy", inline="always")  # calls between compiled functions cost a third of a step


@_inlined
def _fields(rng, state, mixing, counts, shift, token, weight, drawn, parts, inputs):  # type: ignore[no-untyped-def]
    """Draw a step's normals; inputs <- (teacher fields, fields, ..), parts[k] <- the fields' parts along f_k."""
    q, p = token.size, shift.shape[1]
    for i in range(q + p):
        inputs[i] = 0.0
    for k in range(counts.size):
        for n in range(counts[k]):
            drawn[n] = rng.standard_normal()
        for j in range(q):
            if k < weight.shape[1] and weight[j, k] != 0:
                inputs[j] += weight[j, k] * drawn[token[j]]
        for i in range(p):
            along = shift[k, i]
            for n in range(counts[k]):
                along += mixing[k, i, n] * drawn[n]
            parts[k, i] = along
            inputs[q + i] += state[k] * along


@_inlined
def _move(rng, state, rate, freedom, metric, parts, slopes):  # type: ignore[no-untyped-def]
    """One step of the state; False where it has left the numbers."""
    p, last = slopes.size, state.size - 1
    pushed = 0.0
    for i in range(p):
        for j in range(p):
            pushed += metric[i, j] * slopes[i] * slopes[j]
        for k in range(last + 1):
            state[k] -= rate * slopes[i] * parts[k, i]
    state[last] = math.sqrt(state[last] ** 2 + rate * rate * pushed * rng.chisquare(freedom))
    total = 0.0
    for k in range(last + 1):
        total += state[k] ** 2
    norm = math.sqrt(total)
    for k in range(last + 1):
        state[k] /= norm
    return math.isfinite(norm)


@_inlined
def _observe(state, frame, overlaps):  # type: ignore[no-untyped-def]
    """Overlaps <- frame @ state; their norm."""
    squared = 0.0
    for a in range(overlaps.size):
        o = 0.0
        for k in range(frame.shape[1]):
            o += frame[a, k] * state[k]
        overlaps[a] = o
        squared += o * o
    return math.sqrt(squared)


def _run(  # type: ignore[no-untyped-def]
    rng, code, state, frame, rate, freedom, mixing, counts, shift, metric, token, weight, values, steps, record,
    threshold, limit,
):  # fmt: skip
    p, q = metric.shape[0], token.size
    inputs, slopes = np.zeros(q + p + values.size), np.zeros(p)
    drawn, parts, overlaps = np.zeros(mixing.shape[2]), np.zeros((state.size, p)), np.zeros(frame.shape[0])
    for i in range(values.size):
        inputs[q + p + i] = values[i]
    escape, n, row = -1, 0, 0
    while True:
        reached = _observe(state, frame, overlaps) >= threshold
        if reached and escape < 0:
            escape = n
        while row < steps.size and steps[row] == n:
            for a in range(overlaps.size):
                record[row, a] = overlaps[a]
            row += 1
        if n >= limit or (row == steps.size and (escape >= 0 or threshold == math.inf)):
            return escape
        _fields(rng, state, mixing, counts, shift, token, weight, drawn, parts, inputs)
        code(inputs, slopes)
        if not _move(rng, state, rate, freedom, metric, parts, slopes):
            return escape
        n += 1


@functools.cache
def _machine_code() -> Callable[..., int]:
    """`_run`, compiled once for all tasks: of a task only the slopes are compiled anew."""
    scalar, vector, matrix = types.float64, types.float64[::1], types.float64[:, ::1]
    whole = types.int64[::1]
    signature = types.int64(
        types.npy_rng, types.FunctionType(SIGNATURE), vector, matrix, scalar, scalar, types.float64[:, :, ::1], whole,
        matrix, matrix, whole, matrix, vector, whole, matrix, scalar, types.int64,
    )  # fmt: skip
    compiled: Any = njit([signature], nogil=True, error_model="numpy")(_run)
    return compiled  # type: ignore[no-any-return]
