"""Tasks of online SGD for tests: stated in one line, or drawn at random as twins of theory and simulation.

A twin is a target, an activation, a number of tokens, a student and a loss, with a prepared start and a learning
rate; theory and simulation must agree whatever is drawn. Tasks are read from the text that a user would write.
"""

from __future__ import annotations

import random
from fractions import Fraction

from derive.document import Document
from derive.task import load
from derive.tasks.sequence_single_index import SequenceSingleIndex

__all__ = ["PROJECTED", "attention", "draw", "draw_attention", "stated", "text"]

HALF_SQUARE = "(f - y)**2/2"
PSEUDO_HUBER = "sqrt(1 + (f - y)**2) - 1"

ACTIVATIONS = ("relu(x)", "tanh(x)", "erf(x)", "softplus(x)", "sin(x)", "x + He(2, x)/4")
KINKED = ("relu(x)",)

# degree 1 in a token, which makes the overlap move: a wrong drift is seen
POLYNOMIAL_DRIVES = ("{a}", "(He(3, {a})/6 + {a})", "({a} - He(2, {a})/3)")
SMOOTH_DRIVES = (*POLYNOMIAL_DRIVES, "tanh({a})", "erf({a})", "sin({a})")
DRIVES = (*SMOOTH_DRIVES, "relu({a})")
POLYNOMIAL_TERMS = ("He(2, {a})", "{a}*{b}", "He(2, {a})*{b}")
TERMS = (*POLYNOMIAL_TERMS, "{a}*tanh({b})", "cos({a})", "sigmoid({a})*{b}", "erf({a})*{b}")


def text(
    formula: str,
    activation: str,
    length: int,
    *,
    kind: str = "tied",
    loss: str = HALF_SQUARE,
    learning_rate: str = "1/4",
    start: str = "1/10",
    solve: str = "",
    verify: str = "",
) -> str:
    """A task file; `start` is the overlap m (for untied students the norm of mu), or "random"."""
    prepared = '"random"' if start == "random" else f'{{ m = "{start}" }}'
    return f"""
        limitlaw = 1
        family = "sequence-single-index"
        [data]
        length = {length}
        [target]
        formula = "{formula}"
        [student]
        kind = "{kind}"
        activation = "{activation}"
        [training]
        loss = "{loss}"
        learning_rate = "{learning_rate}"
        start = {prepared}
        [solve]
        {solve}
        [verify]
        {verify}
    """


def stated(formula: str, activation: str, length: int, **others: str) -> SequenceSingleIndex:
    """The task of `text(formula, activation, length, **others)`."""
    task = load(Document.read(text(formula, activation, length, **others), "the test"))
    assert isinstance(task, SequenceSingleIndex)
    return task


def draw(seed: int) -> SequenceSingleIndex:
    """A random task, the same on every machine: a drive in every token plus another term or two.

    Where averages stay of few dimensions everything is drawn freely. Three untied tokens have a polynomial target;
    the pseudo-Huber loss, whose averages hold the target and the output at once, has one token and no kinks.
    """
    rng = random.Random(seed)
    length, kind = rng.randint(1, 3), rng.choice(("tied", "untied"))
    activation, drives, terms, loss = rng.choice(ACTIVATIONS), DRIVES, TERMS, HALF_SQUARE
    if length == 3 and kind == "untied":
        drives, terms = POLYNOMIAL_DRIVES, POLYNOMIAL_TERMS
    if length == 1 and activation not in KINKED and rng.random() < 1 / 2:
        drives, loss = SMOOTH_DRIVES, PSEUDO_HUBER
    return stated(
        _target(rng, length, drives, terms),
        activation,
        length,
        kind=kind,
        loss=loss,
        learning_rate=f"1/{rng.randint(4, 8)}",
        start=f"{rng.randint(30, 60)}/100",
        solve='times = "0:3/2:3"',
        verify="dimensions = [20, 40, 80]\nseeds = 512",
    )


PROJECTED = 'dimensions = [50, 100, 200]\nseeds = 4096\nmethod = "projected"'


def attention(
    formula: str,
    *,
    reduction: str = '"trace"',
    positions: str = "positions = [[1], [-1]]",
    loss: str = HALF_SQUARE,
    learning_rate: str = "1/4",
    start: str = '"random"',
    solve: str = "",
    verify: str = "",
) -> SequenceSingleIndex:
    """A task of two tokens with an attention student; `reduction`, `positions` and `start` as they stand in a file."""
    source = f"""
        limitlaw = 1
        family = "sequence-single-index"
        [data]
        length = 2
        {positions}
        [target]
        formula = "{formula}"
        [student]
        kind = "attention"
        reduction = {reduction}
        [training]
        loss = "{loss}"
        learning_rate = "{learning_rate}"
        start = {start}
        [solve]
        {solve}
        [verify]
        {verify}
    """
    task = load(Document.read(source, "the test"))
    assert isinstance(task, SequenceSingleIndex)
    return task


REDUCTIONS = (
    '"trace"',
    '"none"',
    '{ left = ["1", "1/2"], right = ["1", "-1"] }',
    '{ left = ["0", "1"], right = ["2", "1"] }',
)


def draw_attention(seed: int) -> SequenceSingleIndex:
    """A random task with two tokens in opposite positions and an attention student, whole or reduced.

    The drive is odd under the exchange of the tokens with a change of sign, or a softmax itself, so that m moves.
    """
    rng = random.Random(seed)
    reduction = rng.choice(REDUCTIONS)
    drive = f"{_tenths(rng, 5, 9)}*(z1 - z2) + ({rng.choice('+-')}{_tenths(rng, 2, 6)})*He(2, z1)"
    extra = rng.choice(("", " + tanh(z2)/3", " - z1*z2/4", " + sin(z1)/2"))
    matrix = f"attention(z) + [[{_tenths(rng, 1, 3)}*z1, 0], [0, z2/5]]"
    loss = "sum((f-y)**2)/2" if reduction == '"none"' else HALF_SQUARE
    return attention(
        matrix if reduction == '"none"' else drive + extra,
        reduction=reduction,
        loss=loss,
        learning_rate=f"1/{rng.randint(4, 8)}",
        start=f'{{ m = "{rng.randint(25, 45)}/100", e = "{rng.randint(15, 30)}/100" }}',
        solve='times = "0:2:3"',
        verify=PROJECTED,
    )


def _target(rng: random.Random, length: int, drives: tuple[str, ...], terms: tuple[str, ...]) -> str:
    """sum_i c_i drive(z_i), all c_i > 0, and other terms of either sign."""
    tokens = [f"z{i + 1}" for i in range(length)]
    drive = rng.choice(drives)
    parts = [f"{_tenths(rng, 5, 9)}*{drive.format(a=t)}" for t in tokens]
    for _ in range(1 if length > 1 else rng.randint(1, 2)):
        a, b = rng.choice(tokens), rng.choice(tokens)
        parts.append(f"({rng.choice('+-')}{_tenths(rng, 1, 4)})*{rng.choice(terms).format(a=a, b=b)}")
    return " + ".join(parts)


def _tenths(rng: random.Random, low: int, high: int) -> Fraction:
    return Fraction(rng.randint(low, high), 10)
