"""What a task of risk minimisation does not allow, each with one message that says where."""

from __future__ import annotations

import pytest

from derive.document import TaskError
from derive.task import derive, load
from derive.tasks.convex_erm import ConvexErmTask

TASK = """
limitlaw = 1
family = "convex-erm"
[parameters]
alpha = { domain = "(0,inf)", default = 2 }
[latent]
s = { values = [1, -1], probabilities = ["1/2", "1/2"] }
eps = { normal = [0, 1] }
[features]
mean = ["s"]
scale = "1"
[label]
formula = "s"
[erm]
loss = "logistic"
ridge = "1/10"
"""


def stated(**changes: str) -> ConvexErmTask:
    from derive.document import Document

    task = load(Document.read(TASK, "the test"), {k.replace("__", "."): v for k, v in changes.items()})
    assert isinstance(task, ConvexErmTask)
    return task


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features__scale": "0"}, "features.scale: 0 is .*must be positive"),
        ({"features__scale": "s"}, "at s = -1; the scale of the noise must be positive"),
        ({"features__scale": "1 + eps"}, "at eps = -2; the scale of the noise must be positive"),
        ({"label__formula": "log(s)"}, "label.formula: log.* at s = -1; it must be a real number"),
        ({"label__formula": "1/(s - 1)"}, "label.formula: .* at s = 1; it must be a real number"),
        ({"label__formula": "1"}, "label.formula is 1, the same for all samples"),
        ({"loss": "u**2"}, "does not read the label y"),
        ({"loss": "y**2"}, "does not read the output u"),
        ({"loss": "(u - y)**3"}, "not convex in u"),
    ],
)
def test_what_has_no_meaning_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        stated(**changes)


def test_scales_and_labels_that_have_one_are_kept() -> None:
    assert stated(features__scale="exp(eps)").label == stated().label
    # for y = 0 the hinge is the same everywhere
    assert derive(stated(label__formula="s + 1", loss="hinge")).task.limits
