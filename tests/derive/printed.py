"""What a printed formula means, as a number: readers of LaTeX and of MathML that know nothing of the printers.

They read the marks that a person sees: brackets, juxtaposition, fractions, roots, powers. Expectations are not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element, fromstring

import sympy as sp

Values = Mapping[str, float]


def hermite(n: int, x: float) -> float:
    previous, current = 0.0, 1.0
    for k in range(n):
        previous, current = current, x * current - k * previous
    return current


FUNCTIONS = {
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "arcsin": math.asin,
    "erf": math.erf,
    "sign": lambda x: (x > 0) - (x < 0),
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "Phi": lambda x: math.erfc(-x / math.sqrt(2)) / 2,
    "logcosh": lambda x: math.log(2 * math.cosh(x)),
    "softmax": lambda *x: math.exp(x[0]) / sum(map(math.exp, x)),
    "max": max,
    "min": min,
}


def formula_value(expr: sp.Expr, values: Mapping[sp.Symbol, float]) -> float:
    """The number that the expression stands for, by the functions above."""
    names = {"LogCosh": "logcosh", "SoftmaxEntry": "softmax", "Max": "max", "Min": "min"}
    known = {**FUNCTIONS, **{node: FUNCTIONS[name] for node, name in names.items()}, "He": hermite}
    known |= {"Abs": abs, "Heaviside": lambda x, _=0.5: float(x > 0), "asin": math.asin}
    # A symbol named pi must not meet the constant in the generated code.
    renamed = {s: sp.Symbol(f"v_{s.name}", **s.assumptions0) for s in values}
    function = sp.lambdify(list(renamed.values()), expr.xreplace(renamed), [known, "math"])
    return float(function(*values.values()))


class Reader:
    """Recursive descent over marks; a subclass says what a mark that is no sign stands for.

    sum := ["-"] product (("+" | "-") product)*,  product := power (power | "/" power)*.
    """

    def __init__(self, marks: list[str], values: Values) -> None:
        self.marks = [*marks, "end"]
        self.at = 0
        self.values = values

    @property
    def next(self) -> str:
        return self.marks[self.at]

    def take(self, expected: str | None = None) -> str:
        mark = self.next
        assert expected in (None, mark), (expected, self.marks[self.at :])
        self.at += 1
        return mark

    def sum(self) -> float:
        total = 0.0
        sign = -1 if self.next == "-" and self.take() else 1
        while True:
            total += sign * self.product()
            if self.next not in ("+", "-"):
                return total
            sign = 1 if self.take() == "+" else -1

    def product(self) -> float:
        value = self.power()
        while self.next not in ("+", "-", ")", "]", "}", ",", ">", "|)", "end"):
            if self.next == "*":
                self.take()
            value = value / self.power() if self.next == "/" and self.take() else value * self.power()
        return value

    def power(self) -> float:
        base = self.atom()
        return base ** self.exponent() if self.next == "^" else base

    def exponent(self) -> float:
        self.take("^")
        return self.braced()

    def braced(self) -> float:
        self.take("{")
        value = self.sum()
        self.take("}")
        return value

    def arguments(self) -> list[float]:
        self.take("(")
        found = [self.sum()]
        while self.next == ",":
            self.take()
            found.append(self.sum())
        self.take(")")
        return found

    def atom(self) -> float:
        mark = self.take()
        if mark == "(":
            self.at -= 1
            (value,) = self.arguments()
            return value
        if mark == "(|":
            value = abs(self.sum())
            self.take("|)")
            return value
        if mark == "step":
            self.take("[")
            value = self.sum()
            for sign in (">", "0", "]"):
                self.take(sign)
            return float(value > 0)
        if mark == "frac":
            return self.braced() / self.braced()
        if mark == "sqrt":
            return math.sqrt(self.braced())
        if mark == "root":
            order = self.braced()
            return self.braced() ** (1 / order)
        if mark == "He":
            order = int(self.braced())
            return hermite(order, *self.arguments())
        if mark in FUNCTIONS:
            outer = self.exponent() if self.next == "^" else 1
            bare = mark in ("log", "logcosh") and self.next != "("
            return FUNCTIONS[mark](*([self.atom()] if bare else self.arguments())) ** outer
        return self.values[mark] if mark in self.values else float(mark)


LATEX_MARKS = [
    (r"\\Bigl|\\Bigr", ""),
    (r"\\left\|\{(.*?)\}\\right\|", r"(| \1 |)"),
    (r"\\left|\\right", ""),
    (r"\\mathbf\{1\}", " step "),
    (r"\\mathrm\{He\}_", " He "),
    (r"\\operatorname\{softmax\}_\{1\}", " softmax "),
    (r"\\log 2\\cosh", " logcosh "),
    (r"\\operatorname\{(\w+)\}", r" \1 "),
    (r"\\sqrt\[(\d)\]", r" root {\1} "),
    (r"\\cdot", "*"),
    (r"\\quad", ""),
    (r"\\([A-Za-z]+)", r" \1 "),
    (r"_\{(\d)\}", r"\1"),
]


def latex_value(tex: str, values: Values) -> float:
    """The number that a formula in LaTeX stands for; values: by the names on paper, x1 for x_{1}."""
    for pattern, mark in LATEX_MARKS:
        tex = re.sub(pattern, mark, tex)
    reader = Reader(re.findall(r"\(\||\|\)|[A-Za-z]+\d*|\d+|[^\s]", tex), values)
    value = reader.sum()
    reader.take("end")
    return value


def mathml_value(text: str, values: Values) -> float:
    """The number that a `math` element stands for."""
    reader = Reader(_marks(fromstring(text)), values)
    value = reader.sum()
    reader.take("end")
    return value


SIGNS = {"−": "-", "\u2062": "*", "\u22c5": "*", "\u2061": "", "π": "pi", "ϖ": "varpi", "Φ": "Phi", "𝟏": "step"}
WORDS = {"log\u20092cosh": "logcosh"}


def _marks(e: Element) -> list[str]:
    tag = e.tag.rpartition("}")[2]
    inner = [_marks(child) for child in e]
    group = [["{", *m, "}"] for m in inner]
    flat = [mark for marks in inner for mark in marks if mark]
    if tag == "mfrac":
        return ["frac", *group[0], *group[1]]
    if tag == "msqrt":
        return ["sqrt", "{", *flat, "}"]
    if tag == "mroot":
        return ["root", *group[1], *group[0]]
    if tag == "msup":
        return [*inner[0], "^", *group[1]]
    if tag in ("msub", "msubsup"):
        joined = ["He", *group[1]] if inner[0] == ["He"] else ["softmax"] if inner[0] == ["softmax"] else None
        name = joined or ["".join(inner[0] + inner[1])]
        return name if tag == "msub" else [*name, "^", *group[2]]
    if tag in ("math", "mrow"):
        bars = [i for i, mark in enumerate(flat) if mark == "|"]
        if len(bars) == 2:
            flat[bars[0]], flat[bars[1]] = "(|", "|)"
        return flat
    written = (e.text or "").strip()
    return [WORDS.get(written) or SIGNS.get(written, written)]
