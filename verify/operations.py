"""The elementwise torch operations behind SymPy's nodes: stable in the tails, with gradients that autograd has."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import sympy as sp
import torch
from torch import Tensor

from derive.functions import LogCosh, Phi, relu, sigmoid, softplus

__all__ = ["ELEMENTWISE", "Operation", "gate", "nary", "next_orthonormal", "power", "stable_softplus"]

Operation: TypeAlias = Callable[..., Tensor]


def _sign(x: Tensor) -> Tensor:
    # torch.sign(nan) is 0, which would hide it
    return torch.where(torch.isnan(x), x, torch.sign(x))


def _step(x: Tensor) -> Tensor:
    return 0.5 + 0.5 * _sign(x)  # 1/2 at 0; torch.heaviside has no gradient


def stable_softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return torch.logaddexp(x, torch.zeros_like(x))  # torch's own softplus is x beyond a threshold


def _normal_cdf(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))  # torch.special.ndtr cuts the lower tail to 0


def nary(pair: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    """The operation of two, of any number from left to right."""
    return lambda *xs: functools.reduce(pair, xs)


def power(exponent: float, x: Tensor) -> Tensor:
    """x^exponent; the exponent comes first, to be bound."""
    return torch.pow(x, exponent)


def next_orthonormal(k: int, h: Tensor, before: Tensor, x: Tensor) -> Tensor:
    """sqrt(k+1) h_{k+1} = x h_k - sqrt(k) h_{k-1}: h_{k+1}(x) from h = h_k(x) and before = h_{k-1}(x)."""
    return (x * h - math.sqrt(k) * before) * (1 / math.sqrt(k + 1))


def gate(mask: Tensor, x: Tensor) -> Tensor:
    """X itself, but outside the mask nothing flows back, not even the nan of a branch that is not taken."""
    return torch.where(mask, x, x.detach())


ELEMENTWISE: Mapping[type, Operation] = {
    sp.exp: torch.exp,
    sp.sin: torch.sin,
    sp.cos: torch.cos,
    sp.tanh: torch.tanh,
    sp.erf: torch.erf,
    sp.Abs: torch.abs,
    sp.sign: _sign,
    sp.Heaviside: lambda x, *at_zero: _step(x),
    sp.Max: nary(torch.maximum),
    sp.Min: nary(torch.minimum),
    relu: torch.relu,
    sigmoid: torch.sigmoid,
    softplus: stable_softplus,
    LogCosh: lambda x: torch.logaddexp(x, -x),
    Phi: _normal_cdf,
    sp.StrictLessThan: torch.lt,
    sp.LessThan: torch.le,
    sp.StrictGreaterThan: torch.gt,
    sp.GreaterThan: torch.ge,
    sp.Equality: torch.eq,
    sp.Unequality: torch.ne,
    sp.And: nary(torch.logical_and),
    sp.Or: nary(torch.logical_or),
    sp.Not: torch.logical_not,
}
