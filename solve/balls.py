"""Ball arithmetic (Arb) on expressions: constants, analytic integrands, and arrays of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import sympy as sp
from flint import acb, arb, fmpq, fmpz

from derive.functions import LogCosh, Phi, SoftmaxEntry
from derive.spectrum import SechSpectrum
from solve.straightline import Arithmetic, NotEnclosed, plain

__all__ = ["BallArrays", "Balls", "constant_ball", "gaussian_factor"]

Parameters = Mapping[sp.Symbol, arb]


def _phi(z: Any) -> Any:
    return (-z / arb(2).sqrt()).erfc() / 2


def _log_cosh(z: acb, analytic: bool) -> acb:
    # even; z + log(1 + exp(-2z)) is analytic for |Im z| < pi/2 and loses nothing for Re z >= 0
    z = -z if z.real.mid() < 0 else z
    return z + (1 + (-2 * z).exp()).log(analytic=analytic)


def _sech_spectrum(z: acb, analytic: bool) -> acb:
    # even; exp(z^2/2) / sinh(z s/2) = 2 exp(-2 z / (s + z)) / (1 - exp(-z s)), and the sinc is regular at 0
    z = -z if z.real.mid() < 0 else z
    s = (z * z + 4).sqrt(analytic=analytic)
    t = z * s
    ratio = (t / 2).exp() / (acb(0, 1) * t / 2).sinc() / s if abs(t) < 1 else z / (1 - (-t).exp())
    scale = arb(8).sqrt() / arb.pi() ** (arb(3) / 2)
    return scale * (z * z + 2) * (-2 * z / (s + z)).exp() * ratio


def _softmax_entry(own: Any, *others: Any) -> Any:
    return 1 / sum(((b - own).exp() for b in others), acb(1))


_Function = Callable[..., acb]
_ENTIRE_OR_MEROMORPHIC: Mapping[type, _Function] = {
    sp.exp: acb.exp,
    sp.sin: acb.sin,
    sp.cos: acb.cos,
    sp.tanh: acb.tanh,
    sp.erf: acb.erf,
    sp.erfc: acb.erfc,
    sp.gamma: acb.gamma,
    Phi: _phi,
    SoftmaxEntry: _softmax_entry,
}
_WITH_CUTS: Mapping[type, Callable[[acb, bool], acb]] = {
    sp.log: lambda z, analytic: z.log(analytic=analytic),
    sp.Heaviside: lambda z, analytic: z.real_heaviside(analytic=analytic),
    LogCosh: _log_cosh,
    SechSpectrum: _sech_spectrum,
}
_OF_CONSTANTS: Mapping[type, _Function] = {sp.asin: acb.asin, sp.acos: acb.acos, sp.atan: acb.atan}


@dataclass(frozen=True, slots=True)
class Balls(Arithmetic[acb]):
    """Complex balls; with `analytic` a value is non-finite where the function is not analytic on the ball."""

    analytic: bool = False

    def constant(self, value: arb) -> acb:
        return acb(value)

    def add(self, a: acb, b: acb) -> acb:
        return a + b

    def multiply(self, a: acb, b: acb) -> acb:
        return a * b

    def power(self, a: acb, exponent: sp.Rational) -> acb:
        if exponent.is_Integer:
            return a ** int(exponent)
        if exponent == sp.S.Half:
            return a.sqrt(analytic=self.analytic)
        return a.pow(acb(_rational(exponent)), analytic=self.analytic)

    def apply(self, function: type, arguments: Sequence[acb]) -> acb:
        if function in _WITH_CUTS:
            return _WITH_CUTS[function](arguments[0], self.analytic)
        result: acb = _table(_ENTIRE_OR_MEROMORPHIC, function)(*arguments)
        return result


def _table(table: Mapping[type, Any], function: type) -> Any:
    if function not in table:
        raise NotEnclosed(f"no ball arithmetic for {function.__name__} of a variable")
    return table[function]


def _rational(value: sp.Rational) -> arb:
    return arb(fmpq(int(value.p), int(value.q)))


# ------------------------------------------------------------------------------------------- constants


_NUMBERS: Mapping[sp.Expr, Callable[[], arb]] = {
    sp.pi: arb.pi,
    sp.E: arb.const_e,
    sp.EulerGamma: arb.const_euler,
}


def constant_ball(expr: sp.Expr, parameters: Parameters | None = None) -> arb:
    """The real constant `expr` at the current precision; rationals are exact and no float is ever read.

    Raises `ValueError` for a symbol without a value, a float, or a value that is not real; `NotEnclosed` when
    the ball is not finite.
    """
    value = _constant(plain(expr), parameters or {})
    if not value.is_finite():
        raise NotEnclosed(f"{expr} is not finite at this precision")
    if not value.imag.contains(0):
        raise ValueError(f"{expr} is not real: {value.str(10)}. Give a real constant.")
    return value.real


def _constant(e: sp.Expr, parameters: Parameters) -> acb:
    if e.is_Rational:
        return acb(_rational(e))
    if e in _NUMBERS:
        return acb(_NUMBERS[e]())
    if e in parameters:
        return acb(parameters[e])
    if isinstance(e, sp.Add | sp.Mul):
        values = [_constant(a, parameters) for a in e.args]
        return reduce(lambda a, b: a + b if isinstance(e, sp.Add) else a * b, values)
    if isinstance(e, sp.Pow) and e.exp.is_Rational:
        return Balls().power(_constant(e.base, parameters), e.exp)
    if isinstance(e, sp.Pow):
        return _constant(e.base, parameters).pow(_constant(e.exp, parameters))
    if isinstance(e, sp.Function | sp.exp):
        return _constant_function(e, [_constant(a, parameters) for a in e.args])
    raise ValueError(f"{e} ({type(e).__name__}) is no constant with an exact value; give rationals, not floats.")


def _constant_function(e: sp.Expr, arguments: list[acb]) -> acb:
    if type(e) in _OF_CONSTANTS:
        return _OF_CONSTANTS[type(e)](*arguments)
    return Balls().apply(type(e), arguments)


# ------------------------------------------------------------------------------------------- arrays of points


def _elementwise(function: Callable[..., arb]) -> Callable[[Any], Any]:
    pointwise: Callable[[Any], Any] = np.frompyfunc(function, 1, 1)
    return pointwise


_POINTWISE: Mapping[type, Callable[[Any], Any]] = {
    sp.exp: _elementwise(arb.exp),
    sp.log: _elementwise(arb.log),
    sp.sin: _elementwise(arb.sin),
    sp.cos: _elementwise(arb.cos),
    sp.tanh: _elementwise(arb.tanh),
    Phi: _elementwise(_phi),
    LogCosh: _elementwise(lambda x: abs(x) + (-2 * abs(x)).exp().log1p()),
    SechSpectrum: _elementwise(lambda x: _sech_spectrum(acb(x), False).real),
    sp.Heaviside: _elementwise(lambda x: acb(x).real_heaviside().real),
}


@dataclass(frozen=True, slots=True)
class BallArrays(Arithmetic[Any]):
    """NumPy object arrays of real balls, broadcast against each other: one variable to an axis stays cheap."""

    def constant(self, value: arb) -> Any:
        return np.array(value, dtype=object)

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def multiply(self, a: Any, b: Any) -> Any:
        return a * b

    def power(self, a: Any, exponent: sp.Rational) -> Any:
        if exponent == -1:
            return 1 / a
        if exponent.is_Integer:
            return a * a if exponent == 2 else _elementwise(lambda x: x ** fmpz(int(exponent)))(a)
        if exponent == sp.S.Half:
            return _elementwise(arb.sqrt)(a)
        return _elementwise(lambda x: x ** _rational(exponent))(a)

    def apply(self, function: type, arguments: Sequence[Any]) -> Any:
        if function is SoftmaxEntry:
            exponentials = [_POINTWISE[sp.exp](b - arguments[0]) for b in arguments[1:]]
            return 1 / sum(sorted(exponentials, key=np.size), np.array(arb(1), dtype=object))
        return _table(_POINTWISE, function)(arguments[0])


def gaussian_factor(x: Any) -> Any:
    """phi(x) = exp(-x^2 / 2) / sqrt(2 pi) of a real or complex ball."""
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
