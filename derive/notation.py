"""How quantities and functions are written: one table for LaTeX, MathML and drawings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from derive.binding import Binder
from derive.expectation import Expectation
from derive.functions import He, LargestEigenvalue, LogCosh, Phi, SoftmaxEntry, relu, sigmoid, softplus
from derive.patterns import DOTS, nodes_of, shortened_sum

__all__ = [
    "ACCENT_MARKS",
    "FUNCTION_HEADS",
    "GREEK_SIGNS",
    "Name",
    "function_head",
    "is_wide",
    "latex_name",
    "matrix_rows",
    "ordered_terms",
    "plain",
    "split_name",
    "unicode_parts",
]

_LOWER = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon"
_UPPER = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_GREEK: Mapping[str, tuple[str, str]] = {
    **{name: (rf"\{name}", sign) for name, sign in zip(_LOWER.split(), "αβγδϵζηθικλμνξοπρστυ", strict=True)},
    "omicron": ("o", "ο"),
    "pi": (r"\varpi", "ϖ"),  # a quantity named pi is not the constant
    "phi": (r"\phi", "ϕ"),
    "chi": (r"\chi", "χ"),
    "psi": (r"\psi", "ψ"),
    "omega": (r"\omega", "ω"),
    "ell": (r"\ell", "ℓ"),
    "varepsilon": (r"\varepsilon", "ε"),
    "vartheta": (r"\vartheta", "ϑ"),
    "varphi": (r"\varphi", "φ"),
    **{name: (rf"\{name}", sign) for name, sign in zip(_UPPER.split(), "ΓΔΘΛΞΠΣΥΦΨΩ", strict=True)},
}
GREEK_SIGNS: Mapping[str, str] = {sign: tex for tex, sign in _GREEK.values()}
_ALIASES = {"lam": "lambda", "eps": "epsilon"}
_ACCENTS: Mapping[str, tuple[str, str]] = {
    "hat": (r"\hat", "\u0302"),
    "bar": (r"\bar", "\u0304"),
    "tilde": (r"\tilde", "\u0303"),
    "vec": (r"\vec", "\u20d7"),
}
ACCENT_MARKS: Mapping[str, str] = {"hat": "^", "bar": "¯", "tilde": "~", "vec": "\u2192"}
_HEAD = re.compile(r"([A-Za-z]+?)(hat|bar|tilde|star)?(\d*)")


@dataclass(frozen=True, slots=True)
class Name:
    """A name taken apart: z1_star is base z, subscript 1, starred; qhat is base q with the accent hat.

    A subscript is a name in turn: S_mu1.
    """

    base: str
    accent: str | None = None
    star: bool = False
    subscripts: tuple[Name, ...] = ()


def split_name(name: str) -> Name:
    """The parts of an identifier. A hat, bar, tilde or star may be glued only to one letter or a Greek name.

    >>> split_name("q_hat") == split_name("qhat") == Name("q", accent="hat")
    True
    >>> split_name("mu12") == Name("mu", subscripts=(Name("12"),))
    True
    >>> split_name("training_loss").base
    'training loss'
    """
    head, *parts = name.split("_")
    match = _HEAD.fullmatch(head)
    glued = match is not None and (match[2] is None or _is_letter(match[1]))
    base, modifier, digits = (match[1], match[2], match[3]) if match and glued else (head, None, "")
    modifiers = [m for m in (modifier, *parts) if m == "star" or m in _ACCENTS]
    rest = [p for p in parts if p and p not in modifiers]
    accents = [m for m in modifiers if m in _ACCENTS]
    subscripts = tuple(split_name(p) if p != name else Name(p) for p in (digits, *rest) if p)
    if not modifiers and not _is_letter(base) and any(_is_word(s.base) for s in subscripts):
        return Name(" ".join([base + digits, *rest]))
    return Name(base, accents[0] if accents else None, "star" in modifiers, subscripts)


def _is_letter(base: str) -> bool:
    return len(base) == 1 or base in _GREEK or base in _ALIASES


def _is_word(base: str) -> bool:
    return base.isalpha() and len(base) > 2 and not _is_letter(base)


def plain(base: str) -> str:
    """The base of a name in Unicode, without its accent: lam -> λ."""
    base = _ALIASES.get(base, base)
    return _GREEK[base][1] if base in _GREEK else base


def unicode_parts(name: Name) -> tuple[str, str]:
    """A name in Unicode: its base with the accent as a combining mark, and its subscripts in one."""
    below = ",".join("".join(unicode_parts(s)) for s in name.subscripts)
    return plain(name.base) + (_ACCENTS[name.accent][1] if name.accent else ""), below


def latex_name(name: str) -> str:
    r"""A quantity's name in LaTeX: m_star -> m^{\star}, mu1 -> \mu_{1}, omega_trans -> \omega_{\mathrm{trans}}."""
    return _latex(split_name(name), letters=1)


def _latex(name: Name, letters: int) -> str:
    """`letters`: how many letters may stand in italics; a subscript mm is two indices."""
    text = _latex_base(_ALIASES.get(name.base, name.base), letters)
    if name.accent:
        text = rf"{_ACCENTS[name.accent][0]}{{{text}}}"
    if name.subscripts:
        text += f"_{{{', '.join(_latex(s, letters=2) for s in name.subscripts)}}}"
    return text + (r"^{\star}" if name.star else "")


def _latex_base(base: str, letters: int) -> str:
    if base in _GREEK:
        return _GREEK[base][0]
    if base.isdigit() or (len(base) <= letters and base.isalpha()):
        return base
    escaped = re.sub(r"([&%$#_{}\s])", r"\\\1", base)
    return rf"\mathrm{{{escaped}}}"


FUNCTION_HEADS: Mapping[type[sp.Function], tuple[str, str]] = {
    He: (r"\mathrm{He}", "He"),
    LargestEigenvalue: (r"\lambda_{\max}", "λmax"),
    LogCosh: (r"\log 2\cosh", "log\u20092cosh"),
    Phi: (r"\Phi", "Φ"),
    SoftmaxEntry: (r"\operatorname{softmax}", "softmax"),
    relu: (r"\operatorname{relu}", "relu"),
    sigmoid: (r"\operatorname{sigmoid}", "sigmoid"),
    softplus: (r"\operatorname{softplus}", "softplus"),
    sp.DiracDelta: (r"\delta", "δ"),
    sp.Max: (r"\max", "max"),
    sp.Min: (r"\min", "min"),
    sp.acos: (r"\arccos", "arccos"),
    sp.asin: (r"\arcsin", "arcsin"),
    sp.atan: (r"\arctan", "arctan"),
    sp.cos: (r"\cos", "cos"),
    sp.cosh: (r"\cosh", "cosh"),
    sp.exp: (r"\exp", "exp"),
    sp.gamma: (r"\Gamma", "Γ"),
    sp.log: (r"\log", "log"),
    sp.sin: (r"\sin", "sin"),
    sp.sinh: (r"\sinh", "sinh"),
    sp.tan: (r"\tan", "tan"),
    sp.tanh: (r"\tanh", "tanh"),
}


def function_head(function: sp.Function) -> tuple[str, str]:
    """The name of a function in LaTeX and in Unicode; an unknown one is written by its class name in roman."""
    name = type(function).__name__
    return FUNCTION_HEADS.get(type(function), (rf"\operatorname{{{name}}}", name))


def matrix_rows(node: LargestEigenvalue) -> list[list[sp.Expr]]:
    """The rows of the matrix whose largest eigenvalue the node is."""
    n, *entries = node.args
    return [entries[i : i + int(n)] for i in range(0, len(entries), int(n))]


def is_wide(factor: sp.Expr) -> bool:
    """Whether a factor stands after a fraction rather than in its numerator."""
    if not factor.is_Add:
        return isinstance(factor, (Expectation, Binder))
    return len(factor.args) > 3 or bool(nodes_of(factor, Expectation, Binder))


def ordered_terms(expr: sp.Expr) -> list[sp.Expr]:
    """The terms of a sum in SymPy's order, but a positive one first where there is one: 1 - m, not -m + 1.

    Of long runs with an index only the first and the last stand there, around `derive.patterns.DOTS`.
    """
    terms = shortened_sum(expr.as_ordered_terms())
    first = next((i for i, t in enumerate(terms) if not t.could_extract_minus_sign()), 0)
    stop = first + (3 if DOTS in terms[first + 1 : first + 2] else 1)
    return [*terms[first:stop], *terms[:first], *terms[stop:]]
