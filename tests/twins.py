"""Random tasks of online SGD, each a small task file: whatever is drawn, theory and simulation must agree.

A twin is one target, activation, number of tokens, student and loss, with a prepared start and a learning rate in
proportion to the noise. `draw(seed)` is the same task on every machine: it uses random.Random alone.
"""

from __future__ import annotations

import random
from fractions import Fraction

from derive.document import Document
from derive.task import TaskSpec, load

__all__ = ["draw", "text"]

ACTIVATIONS = ("relu(x)", "tanh(x)", "erf(x)", "softplus(x)", "sin(x)", "x + He(2,x)/4", "x - x**3/12")
DRIVES = ("{a}", "tanh({a})", "erf({a})", "sin({a})", "He(3,{a})/6 + {a}", "relu({a})")
OTHERS = ("He(2,{a})", "{a}*{b}", "He(2,{a})*{b}", "{a}*tanh({b})", "cos({a})", "sigmoid({a})*{b}", "sin({a} - {b})")
HALF_SQUARE = "(f - y)**2/2"
PSEUDO_HUBER = "sqrt(1 + (f - y)**2) - 1"


def draw(seed: int) -> TaskSpec:
    """The task of `text(seed)`."""
    return load(Document.read(text(seed), f"twin {seed}"))


def text(seed: int) -> str:
    """A task file: target = drive + one or two other terms, each with a rational coefficient.

    The drive, of degree 1 in every token, makes the overlap move, so that a wrong drift is seen. The loss is
    pseudo-Huber for a third of the tasks of one token (with more, its Gaussian averages have three dimensions).
    """
    rng = random.Random(seed)
    length = rng.randint(1, 3)
    kind = rng.choice(("tied", "untied"))
    activation = rng.choice(ACTIVATIONS)
    loss = PSEUDO_HUBER if length == 1 and rng.random() < 1 / 3 else HALF_SQUARE
    formula = _target(rng, length)
    rate = Fraction(1, rng.randint(4, 8))
    start = Fraction(rng.randint(30, 60), 100)
    return f"""
        limitlaw = 1
        family = "sequence-single-index"
        [parameters]
        gamma = {{ default = "{rate}", domain = "(0,inf)" }}
        [data]
        length = {length}
        [target]
        formula = "{formula}"
        [student]
        kind = "{kind}"
        activation = "{activation}"
        [training]
        loss = "{loss}"
        learning_rate = "gamma"
        start = {{ m = "{start}" }}
        [solve]
        times = "0:3/2:3"
        [verify]
        dimensions = [20, 40, 80]
        seeds = 512
    """


def _target(rng: random.Random, length: int) -> str:
    """sum_i c_i drive(z_i) + other terms, with coefficients of one sign for the drive."""
    tokens = [f"z{i + 1}" for i in range(length)]
    drive = rng.choice(DRIVES)
    terms = [f"{_coefficient(rng, 5, 9)}*({drive.format(a=t)})" for t in tokens]
    for _ in range(rng.randint(1, 2)):
        a, b = rng.choice(tokens), rng.choice(tokens)
        sign = rng.choice("+-")
        terms.append(f"({sign}{_coefficient(rng, 1, 4)})*({rng.choice(OTHERS).format(a=a, b=b)})")
    return " + ".join(terms)


def _coefficient(rng: random.Random, low: int, high: int) -> Fraction:
    return Fraction(rng.randint(low, high), 10)
