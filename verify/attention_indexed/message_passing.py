"""Approximate message passing on the data of one instance, with its Onsager terms from measured responses.

In orthonormal coordinates v_mu = F_mu S of the indices, with entries of F of variance 1/d, each step is
    omega = F S - V g,  g = V^-1 (prox_V(omega) - omega),  a = -(1/d) sum_mu div g_mu,
    R = S + F^T g/a,  S <- argmin |S - R|_F^2/2 + d Tr penalty(S)/a,  V_mu <- F_mu (dS/dR) F_mu^T/a
[Rangan, arXiv:1010.5141, with a denoiser of matrices]. A fixed point is a stationary point of the training problem,
exactly and at any d; the law of R is that of S0 plus noise, which state evolution follows, in the limit of large d.
V_mu is then Sigma = div(R -> S)/(a d) for all samples. At finite d it must be each sample's own: |F_mu|^2 varies by
O(1/sqrt d) with |x|^2, and an iteration with the mean of V is unstable at d = 100.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.attention_indexed.penalty import Denoised
from verify.attention_indexed.proximal_gradient import subgradient_residual
from verify.attention_indexed.risk import Minimum, Risk, checked
from verify.attention_indexed.tokens import Tokens
from verify.attention_indexed.vector_prox import respond, scales_of

__all__ = ["Iterate", "iterates", "message_passing", "sample_responses"]

TOLERANCE = 1e-6
_MOST_STEPS = 2000
_LOOK = 5


@dataclass(frozen=True, eq=False)
class Iterate:
    """After some steps: the student S (d, d), and what the next step needs of the last one.

    sigma: Sigma, the mean response of an index. curvature: a, the inverse step of the denoiser. forces: g, (pairs, n).
    response: V, (n, pairs, pairs).
    """

    s: Tensor
    sigma: float
    curvature: float
    forces: Tensor
    response: Tensor


def iterates(risk: Risk, *, sigma: float = 1.0, damping: float = 0.0) -> Iterator[Iterate]:
    """The iteration from S = 0 with the first response `sigma`, beginning with that start.

    damping: the weight of the old g and S in the new ones: it changes the path (state evolution does not hold on it),
    not where it ends.
    """
    x, d = risk.tokens.x, risk.d
    scales = scales_of(risk.tokens.pairs, x)[:, None]
    here = _start(risk, sigma)
    while True:
        yield here
        omega = risk.tokens.indices(here.s) / scales - torch.einsum("nij,jn->in", here.response, here.forces)
        found = respond(risk.loss, risk.known, omega, here.response, scales[:, 0])
        forces = (1 - damping) * found.forces + damping * here.forces
        curvature = -float(found.divergence.sum()) / d
        if not curvature > 0:
            raise FloatingPointError(f"Message passing: the mean curvature of the losses is {curvature:.3g}.")
        r = here.s + risk.tokens.adjoint(forces / scales) / curvature
        denoised = risk.penalty.denoise(r, 1 / curvature)
        s = (1 - damping) * denoised.matrix + damping * here.s
        response = sample_responses(risk.tokens, denoised) / curvature
        here = Iterate(s, denoised.divergence / (curvature * d), curvature, forces, response)


def _start(risk: Risk, sigma: float) -> Iterate:
    x, d = risk.tokens.x, risk.d
    forces = x.new_zeros((len(risk.tokens.pairs), risk.tokens.n))
    whole = Denoised(x.new_zeros((d, d)), 0.0, torch.eye(d, dtype=x.dtype, device=x.device), x.new_ones((d, d)))
    response = sample_responses(risk.tokens, whole) * (2 * sigma / d)
    return Iterate(whole.matrix, sigma, 0.0, forces, response)


def sample_responses(tokens: Tokens, denoised: Denoised) -> Tensor:
    """F_mu J F_mu^T for the derivative J of the denoiser: (n, pairs, pairs), by one pass over the samples."""
    return torch.cat([_block_responses(block, denoised) for _, block in tokens.blocks()])


def _block_responses(tokens: Tokens, denoised: Denoised) -> Tensor:
    """With z_ab = x_a x_b elementwise, in the basis where J is elementwise, and J_ii on its diagonal,

    (z_ac J z_be + z_ae J z_bc)/2 - delta_ab z_ce diag J - delta_ce z_ab diag J + delta_ab delta_ce Tr J,
    the form <F_ab, J F_ce>, over d and the scales of the two coordinates.
    """
    x = tokens.x @ denoised.basis
    own, pairs = denoised.response.diagonal(), tokens.pairs
    z = {p: x[p[0]] * x[p[1]] for p in pairs}
    images = {p: zp @ denoised.response for p, zp in z.items()}
    diagonal = {p: zp @ own for p, zp in z.items()}
    trace = own.sum()

    def product(p: tuple[int, int], q: tuple[int, int]) -> Tensor:
        return torch.einsum("nd,nd->n", images[min(p), max(p)], z[min(q), max(q)])

    found = x.new_empty((x.shape[1], len(pairs), len(pairs)))
    for i, (a, b) in enumerate(pairs):
        for j, (c, e) in enumerate(pairs[: i + 1]):
            value = (product((a, c), (b, e)) + product((a, e), (b, c))) / 2
            if a == b:
                value = value - diagonal[c, e] + (trace if c == e else 0.0)
            if c == e:
                value = value - diagonal[a, b]
            scale = math.sqrt((1 + (a == b)) * (1 + (c == e)))
            found[:, i, j] = found[:, j, i] = value / (tokens.d * scale)
    return found


def message_passing(
    risk: Risk, *, tolerance: float = TOLERANCE, damping: float = 0.0, most_steps: int = _MOST_STEPS
) -> Minimum:
    """Where the iteration ends, with the certificate of a minimum of the training problem.

    Raises `TrainingError` where it does not come to rest.
    """
    residual = math.inf
    for count, here in enumerate(iterates(risk, damping=damping)):
        if count and (count % _LOOK == 0 or count == most_steps):
            residual = subgradient_residual(risk, here.s, 1 / here.curvature)
            if residual <= tolerance or count >= most_steps or not math.isfinite(residual):
                break
    return checked(Minimum(here.s, residual, count), tolerance, "Message passing")
