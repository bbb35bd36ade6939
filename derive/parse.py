"""Text -> SymPy, for formulas that strangers write: a closed grammar, declared names, bounded work, no evaluation.

`derive.syntax` reads the text, `derive.arithmetic` bounds the constants; here names, functions and shapes get
their meaning. A formula takes milliseconds, the worst one about a second.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

import sympy as sp

from derive.arithmetic import EQUATIONS, FORMULAS, Arithmetic, Scalar
from derive.arrays import EQUATION_FUNCTIONS, FORMULA_FUNCTIONS, Array, Function, elementwise, stack
from derive.binders import BINDERS
from derive.spectra import Listed
from derive.syntax import Call, Fault, Listing, Name, Negative, Node, Number, Power, Product, Sum, parse

__all__ = [
    "FormulaError",
    "check_parameter_name",
    "nearest_name",
    "parse_constant",
    "parse_expression",
]


class FormulaError(ValueError):
    """A formula that is not accepted: one line that names the part and the rule it breaks."""


def parse_expression(
    text: str,
    names: Mapping[str, sp.Expr | sp.MatrixBase],
    *,
    what: str = "formula",
    equations: bool = False,
    spectra: Mapping[str, Listed] | None = None,
) -> sp.Expr | sp.ImmutableDenseMatrix:
    """The SymPy expression that `text` means, exactly (0.1 is 1/10); a vector of length n has the shape (n, 1).

    names: what the declared names stand for; a column is a vector. Operators and functions act elementwise.
    what: what the formula is for, said in errors.
    equations: also accept what only derived equations hold, `Expectation` among them (`derive.binders`).
    spectra: lists of eigenvalues that the text names.

    Raises `FormulaError`.

    >>> z = sp.symbols("z1 z2", real=True)
    >>> parse_expression("sum(z**2)/2 + 0.1", {"z": sp.ImmutableDenseMatrix(z)})
    z1**2/2 + z2**2/2 + 1/10
    """
    limits = EQUATIONS if equations else FORMULAS
    try:
        _check_text(text, limits.characters)
        arithmetic = Arithmetic(limits)
        result = _Builder(names, arithmetic, equations, spectra or {}).build(parse(text))
        for entry in result.entries:
            arithmetic.check(entry.expr)
        return result.export()
    except Fault as fault:
        raise FormulaError(f"{what}: {_part(text, fault)} {fault.reason}.") from None


def parse_constant(text: str, what: str) -> sp.Expr:
    """The exact value of a constant formula: 9/10, 1e-5, sqrt(2). Raises `FormulaError`."""
    value = parse_expression(text, {}, what=what)
    if isinstance(value, sp.MatrixBase):
        raise FormulaError(f"{what}: {_shown(text)} is a matrix; one number is needed.")
    return value


def check_parameter_name(name: str, reserved: Collection[str]) -> str:
    """The canonical form of the name of a user's parameter ("lambda" is "lam"). Raises `FormulaError` if taken.

    reserved: the names of the theory's own quantities.
    """
    canonical = "lam" if name == "lambda" else name
    shown = _shown(name)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,31}", name) or "__" in name:
        raise FormulaError(
            f"{shown} cannot name a parameter; a name has up to 32 letters, digits and single _, a letter first."
        )
    if name in FORMULA_FUNCTIONS:
        raise FormulaError(f"{shown} cannot name a parameter: it is a function of formulas.")
    if re.fullmatch(r"z\d*|x\d+(_\d+)?", name):
        kind = "a token" if name.startswith("z") else "a variable under an expectation"
        raise FormulaError(f"{shown} cannot name a parameter: it names {kind}.")
    if name in ("inf", "nan"):
        raise FormulaError(f"{shown} cannot name a parameter: it reads as a number.")
    if canonical in reserved:
        raise FormulaError(f"{shown} cannot name a parameter: it is a quantity of this theory; choose another.")
    return canonical


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, if any is."""
    by_case = {k.lower(): k for k in sorted(known)}
    close = difflib.get_close_matches(name[:64].lower(), by_case, n=1, cutoff=0.6)
    return by_case[close[0]] if close else None


def _check_text(text: str, longest: int) -> None:
    if not isinstance(text, str):
        raise Fault(f"is not text but {type(text).__name__}")
    if len(text) > longest:
        raise Fault(f"has {len(text)} characters, more than {longest}")
    if not text.strip():
        raise Fault("is empty")
    for i, character in enumerate(text):
        if not character.isascii() or not (character.isprintable() or character in "\t\r\n"):
            raise Fault("is no plain ASCII character", i, i + 1)


def _part(text: str, fault: Fault) -> str:
    if fault.start < 0:
        return _shown(text)
    return _shown(text[fault.start : fault.end] or text)


def _shown(text: str) -> str:
    """A quotation that fits into one line."""
    words = " ".join(str(text)[:400].split())
    return ascii(words if len(words) <= 60 and len(str(text)) <= 400 else words[:57] + "...")


class _Builder:
    """Gives a tree its meaning; faults get the position of the innermost node that has one."""

    def __init__(
        self,
        names: Mapping[str, sp.Expr | sp.MatrixBase],
        arithmetic: Arithmetic,
        equations: bool,
        spectra: Mapping[str, Listed],
    ) -> None:
        self._names = names
        self.arithmetic = arithmetic
        self._equations = equations
        self.spectra = spectra

    def inside(self, names: Mapping[str, sp.Expr]) -> _Builder:
        """The same, with these names bound as well."""
        return _Builder({**self._names, **names}, self.arithmetic, self._equations, self.spectra)

    def build(self, node: Node) -> Array:
        """The meaning of a tree."""
        try:
            return self._build(node)
        except Fault as fault:
            if fault.start < 0:
                fault.start, fault.end = node.start, node.end
            raise

    def _build(self, node: Node) -> Array:
        do = self.arithmetic
        match node:
            case Number(text=text):
                return Array((), (do.number(text),))
            case Name(text=name):
                return self._name(name)
            case Negative(operand=operand):
                return elementwise(lambda x: do.negative(x[0]), [self.build(operand)])
            case Sum(terms=terms):
                return elementwise(do.add, [self._signed(t, do.negative) for t in terms])
            case Product(factors=factors):
                return elementwise(do.multiply, [self._signed(f, do.inverse) for f in factors])
            case Power(base=base, exponent=exponent):
                pair = [self.build(base), self.build(exponent)]
                return elementwise(lambda x: do.power(x[0], x[1]), pair)
            case Listing(items=items):
                return stack([self.build(i) for i in items])
            case Call(name=name) if self._equations and name in BINDERS:
                return Array((), (BINDERS[name](self, node),))
            case Call(name=name, arguments=arguments):
                function = self._function(name)
                return function(do, [self.build(a) for a in arguments])
        raise AssertionError(node)

    def _signed(self, item: tuple[bool, Node], change: Callable[[Scalar], Scalar]) -> Array:
        changed, node = item
        value = self.build(node)
        try:
            return elementwise(lambda x: change(x[0]), [value]) if changed else value
        except Fault as fault:
            fault.start, fault.end = node.start, node.end
            raise

    def _name(self, name: str) -> Array:
        value = self._names.get(name)
        if value is None and name == "lambda":
            value = self._names.get("lam")
        if value is None and name == "pi":
            value = sp.pi
        if value is None:
            raise Fault(self._unknown(name))
        if not isinstance(value, sp.MatrixBase):
            return Array((), (self.arithmetic.given(value),))
        shape = (value.rows,) if value.cols == 1 else value.shape
        return Array(shape, tuple(self.arithmetic.given(e) for e in value))

    def _unknown(self, name: str) -> str:
        if name in FORMULA_FUNCTIONS:
            return f"is a function; give it an argument, {name}(...)"
        if name.lower() in ("inf", "infinity", "nan", "oo"):
            return "is no finite number"
        declared = sorted(self._names)
        near = nearest_name(name, [*declared, *FORMULA_FUNCTIONS, "pi"])
        listed = ", ".join(declared[:20]) + (", ..." if len(declared) > 20 else "")
        hint = f"; the nearest is {near}" if near else ""
        return f"is not declared{hint}" + (f" (declared: {listed})" if declared else " (nothing is declared)")

    def _function(self, name: str) -> Function:
        function = EQUATION_FUNCTIONS.get(name) if self._equations else FORMULA_FUNCTIONS.get(name)
        if function is not None:
            return function
        if name in self._names:
            raise Fault(f"uses {name} as a function, which it is not; a product is written with *")
        near = nearest_name(name, FORMULA_FUNCTIONS)
        raise Fault(f"calls {_shown(name)}, which is no function here" + (f"; the nearest is {near}" if near else ""))
