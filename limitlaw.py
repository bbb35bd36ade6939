"""limitlaw: from a learning task to its limit laws, as equations, numbers and a verdict against simulation.

The Python facade (`load`, `derive`, `solve`, `verify`, `sie`) and the command line, both thin: the work is done in
the packages `derive`, `solve` and `verify`, imported when they are needed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from derive.task import Derivation, TaskSpec
    from solve.solution import Solution
    from verify.check import Check

__all__ = ["derive", "load", "main", "sie", "solve", "verify"]

Changes = Mapping[str, str]


# ---- the facade -------------------------------------------------------------------------------------------
def load(source: str | Path, changes: Changes | None = None) -> TaskSpec:
    """The task of a file or of a shipped example, with changes as of `--set` (name -> text of the value)."""
    from derive import task

    return task.load(source, changes)


def derive(task: TaskSpec, *, order: int = 8) -> Derivation[Any]:
    """Exponents (with enclosures where algebra does not decide), equations and laws of a task."""
    from derive.task import derive as derive_task
    from solve.certify import decide

    task.check()
    return derive_task(task, order=order, decide=decide)


def solve(
    derivation: Derivation[Any], parameters: Mapping[str, float] | None = None, *, certify: bool = False
) -> Solution:
    """Numbers of a derivation: series or fixed points, laws, thresholds. Parameters override the task's values.

    certify: enclose the critical values by ball arithmetic, to 30 digits where that is affordable.
    """
    from solve.solution import solve_derivation

    return solve_derivation(derivation, parameters or {}, certify=certify)


def verify(
    derivation: Derivation[Any],
    parameters: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Check:
    """The derivation's predictions against simulation, with a verdict and a negative control.

    `progress` is told, line by line, what is being simulated and about how long the rest will take.
    """
    from verify.check import check

    return check(derivation, parameters or {}, seed=seed, progress=progress)


def sie(
    formula: str,
    length: int,
    *,
    student: str = "tied",
    activation: str | None = None,
    reduction: str | None = None,
    positional: bool = False,
    order: int = 8,
    changes: Changes | None = None,
    parameters: Sequence[str] = (),
) -> dict[str, Any]:
    """The sequence information exponents of a target formula, as the record that `limitlaw sie --json` prints.

    activation: of tied and untied students, generic if None. reduction: of an attention student, trace or none.
    positional: opposite positional encodings of two tokens. Raises `TaskError` for what does not go together.
    """
    from derive.document import TaskError
    from derive.statement import statement
    from solve.certify import decide
    from solve.dynamic import with_dynamics
    from solve.exponents import exponent_record

    if student == "attention" and activation is not None:
        raise TaskError("An attention student has no activation; leave it out, or choose a tied or untied student.")
    if student != "attention" and reduction is not None:
        raise TaskError(f"A reduction is of the attention matrix; a {student} student has none.")
    if positional and length != 2:
        raise TaskError(
            f"--positional is the opposite pair of encodings of two tokens, got {length}; for others write a task "
            "file with data.positions."
        )
    shape = {"reduction": reduction or "none"} if student == "attention" else {"activation": activation or "generic"}
    positions = [[1], [-1]] if positional else None
    task = statement(formula, length, {"kind": student, **shape}, changes or {}, parameters, positions)
    return exponent_record(with_dynamics(task, task.exponents(order, decide), order, decide))


# ---- the command line -------------------------------------------------------------------------------------
EXIT_DISAGREES, EXIT_WRONG_INPUT, EXIT_NO_CONVERGENCE, EXIT_INTERNAL = 1, 2, 3, 70

_ACTIVATION = (
    "Of a network: a formula in x; or generic (the default), any activation of which no Hermite coefficient "
    "vanishes, sigma_1, sigma_2, .. in the output; or generic-odd, an odd one of which no odd coefficient does."
)

_set = click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Value of a parameter or key.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON alone on stdout.")
_order = click.option(
    "--order", type=click.IntRange(1, 64), default=8, show_default=True, help="Highest degree searched."
)
_seed = click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True)


def _in_a_folder(_context: click.Context, _parameter: click.Parameter, path: str | None) -> str | None:
    """A path that can be written to later: told now, not after the work."""
    if path is not None and not Path(path).parent.is_dir():
        raise click.BadParameter(f"the folder of {path!r} does not exist.")
    return path


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("limitlaw"), prog_name="limitlaw")
def cli() -> None:
    """State a learning task; get its limit laws as equations, as numbers, and checked against simulation."""


@cli.command("sie")
@click.argument("formula")
@click.option("--length", "-L", type=click.IntRange(1, 64), required=True, help="Number of tokens.")
@click.option("--student", type=click.Choice(["tied", "untied", "attention"]), default="tied", show_default=True)
@click.option("--activation", default=None, help=_ACTIVATION)
@click.option("--reduction", type=click.Choice(["trace", "none"]), default=None, help="Of the attention matrix.")
@click.option("--positional", is_flag=True, help="Opposite positional encodings of two tokens.")
@click.option("--parameter", "parameters", multiple=True, metavar="NAME", help="Declare a free parameter.")
@_order
@_set
@_json
def sie_command(
    formula: str,
    length: int,
    student: str,
    activation: str | None,
    reduction: str | None,
    positional: bool,
    parameters: tuple[str, ...],
    order: int,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """The sequence information exponents of a target FORMULA in the tokens z1 .. zL, with certificates."""
    from solve.present import exponents_text

    given = _changes(changes)
    record = sie(
        formula,
        length,
        student=student,
        activation=activation,
        reduction=reduction,
        positional=positional,
        order=order,
        changes=given,
        parameters=parameters,
    )
    head = _head("sie", formula, given)
    _emit({**head, **record} if as_json else exponents_text(record))


@cli.command("expect")
@click.argument("formula")
@click.option("--correlation", default=None, metavar="RHO", help="Correlation of u and v, exact.")
@_set
@_json
def expect_command(formula: str, correlation: str | None, changes: tuple[str, ...], as_json: bool) -> None:
    """The expectation of FORMULA over independent standard normal z1, z2, .. (or z), or the pair u, v."""
    from solve.expect import expect, expectation_text, without_value
    from solve.result import SolveError

    given = _changes(changes)
    head = _head("expect", formula, given)
    try:
        record = expect(formula, correlation, given)
    except SolveError as error:
        if as_json:
            _emit({**head, **without_value(error)})
        raise
    _emit({**head, **record} if as_json else expectation_text(record))


@cli.command("examples")
@click.argument("name", required=False)
def examples_command(name: str | None) -> None:
    """List the shipped examples, or print the task file of one."""
    from derive.document import TaskError
    from derive.task import example_names, example_text

    if name is None:
        _emit("\n".join(example_names()))
        return
    if name not in example_names():
        raise TaskError(f"No example {name!r}; there are {', '.join(example_names())}.")
    _emit(example_text(name).rstrip())


@cli.command("check")
@click.argument("source", metavar="FILE")
@_set
def check_command(source: str, changes: tuple[str, ...]) -> None:
    """Read a task file and say whether it is in order."""
    from derive.task import families

    task = load(source, _changes(changes))
    task.check()
    family = next(name for name, kind in families().items() if kind is type(task))
    _emit(f"{source}: a task of the family {family}, in order.")


@cli.command("derive")
@click.argument("source", metavar="FILE-OR-EXAMPLE")
@click.option("--latex", "as_latex", is_flag=True, help="Print a LaTeX document.")
@click.option("--dot", "as_dot", is_flag=True, help="Print the dependency graph for Graphviz.")
@click.option(
    "--svg", type=click.Path(dir_okay=False), callback=_in_a_folder, help="Write the dependency graph to this SVG file."
)
@_order
@_set
@_json
def derive_command(
    source: str,
    as_latex: bool,
    as_dot: bool,
    svg: str | None,
    order: int,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Derive the equations of a task."""
    from derive import present
    from derive.record import key, record

    if as_json + as_latex + as_dot > 1:
        raise click.UsageError("--json, --latex and --dot are three forms of one output; choose one.")
    given = _changes(changes)
    derivation = derive(load(source, given), order=order)
    if svg is not None:
        with _writing(svg):
            Path(svg).write_text(present.svg(derivation.system), encoding="utf-8")
    if as_json:
        laws = None if derivation.laws is None else record(derivation.laws)
        system = {**record(derivation.system), "key": key(derivation.system)}
        _emit({**_head("derive", source, given), **system, "laws": laws})
    elif as_latex:
        _emit(present.document(derivation.system, source))
    elif as_dot:
        _emit(present.dot(derivation.system))
    else:
        _emit(present.markdown(derivation.system, source))


@cli.command("solve")
@click.argument("source", metavar="FILE-OR-EXAMPLE")
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME=A:B:N[:log]", help="Sweep a parameter; at most two.")
@click.option(
    "--save", type=click.Path(dir_okay=False), callback=_in_a_folder, help="Write a sweep to this NetCDF file."
)
@click.option("--certify", is_flag=True, help="Prove the digits of critical values (minutes).")
@_order
@_seed
@_set
@_json
def solve_command(
    source: str,
    sweeps: tuple[str, ...],
    save: str | None,
    certify: bool,
    order: int,
    seed: int,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Solve the equations of a task."""
    from solve.present import solution_text
    from solve.solution import solution_record
    from solve.solution_sweep import sweep_record

    if save is not None and not sweeps:
        raise click.UsageError("--save writes a sweep to a file; give one with --sweep NAME=A:B:N.")
    if certify and sweeps:
        raise click.UsageError("--certify is for one point of the parameters, without --sweep.")
    given = _changes(changes)
    swept = [_pair(s, "--sweep") for s in sweeps]
    both = [name for name, _ in swept if name in given or f"parameters.{name}" in given]
    if both:
        raise click.UsageError(f"{both[0]} is given both by --set and by --sweep; choose one.")
    derivation = derive(load(source, given), order=order)
    if certify and derivation.thresholds is None:
        raise click.UsageError("--certify proves critical values, and this task has none.")
    if sweeps:
        with _writing(save):
            record = sweep_record(derivation, swept, save)
    else:
        record = solution_record(solve(derivation, certify=certify))
    _emit({**_head("solve", source, given, seed), **record} if as_json else solution_text(record))
    if record["missing"]:
        _fail(f"no value for {', '.join(record['missing'])}; give one with --set NAME=VALUE.", EXIT_WRONG_INPUT)
    if record["status"] not in ("converged", None):
        _fail(f"not converged: {record['status']}", EXIT_NO_CONVERGENCE)


@cli.command("verify")
@click.argument("source", metavar="FILE-OR-EXAMPLE")
@click.option("--report", type=click.Path(file_okay=False), help="Write report.md and report.html to this folder.")
@_order
@_seed
@_set
@_json
@click.pass_obj
def verify_command(
    words: list[str],
    source: str,
    report: str | None,
    order: int,
    seed: int,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Derive, solve and simulate a task, and say whether theory and simulation agree."""
    from verify.check import check_record
    from verify.report import verdict_text, write_report

    given = _changes(changes)
    derivation = derive(load(source, given), order=order)
    if report is not None:
        with _writing(report):
            Path(report).mkdir(parents=True, exist_ok=True)
    checked = verify(derivation, seed=seed, progress=lambda line: click.echo(line, err=True))
    if report is not None:
        with _writing(report):
            write_report(checked, Path(report), _task_text(source), ["limitlaw", *words])
    record = check_record(checked)
    _emit({**_head("verify", source, given, seed), **record} if as_json else verdict_text(checked))
    if record["verdict"] != "agrees":
        sys.exit(EXIT_DISAGREES)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line: exit 0 good, 1 disagreement, 2 wrong input, 3 no convergence, 70 internal error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_guarded(lambda: cli.main(words, prog_name="limitlaw", standalone_mode=False, obj=words)))


def _guarded(run: Callable[[], Any]) -> int:
    from derive.document import TaskError
    from derive.parse import FormulaError
    from solve.result import SolveError

    try:
        code = run()  # what a command returns is None; click returns the code of an Exit that one has raised
    except click.Abort:
        return _say("interrupted", 130)
    except click.NoSuchOption as error:
        return _say(error.format_message() + _minus_hint(error), EXIT_WRONG_INPUT)
    except click.ClickException as error:
        return _say(error.format_message(), EXIT_WRONG_INPUT)
    except (FormulaError, TaskError) as error:
        return _say(str(error), EXIT_WRONG_INPUT)
    except SolveError as error:
        return _say(str(error), EXIT_NO_CONVERGENCE)
    except BrokenPipeError:
        return 0
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="limitlaw-", suffix=".log", delete=False) as log:
            traceback.print_exc(file=log)
        return _say(f"internal error ({type(error).__name__}: {error}); the traceback is in {log.name}", EXIT_INTERNAL)
    return code if isinstance(code, int) else 0


def _minus_hint(error: click.NoSuchOption) -> str:
    command = error.ctx.info_name if error.ctx is not None else None
    if command not in ("sie", "expect"):
        return ""
    return f" A formula that begins with a minus sign comes last, after --: limitlaw {command} [OPTIONS] -- '-z1*z2'."


def _say(message: str, code: int) -> int:
    click.echo(f"limitlaw: {' '.join(message.split())}", err=True)
    return code


def _fail(message: str, code: int) -> NoReturn:
    raise click.exceptions.Exit(_say(message, code))


def _emit(output: str | Mapping[str, Any]) -> None:
    click.echo(output if isinstance(output, str) else json.dumps(output, indent=1, allow_nan=False))


@contextlib.contextmanager
def _writing(path: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from None


def _task_text(source: str) -> str:
    from derive.task import example_names, example_text

    return example_text(source) if source in example_names() else Path(source).read_text(encoding="utf-8-sig")


def _pair(text: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name.strip() or not value.strip():
        raise click.UsageError(f"{option} {text!r} is not NAME=VALUE.")
    return name.strip(), value.strip()


def _changes(given: Sequence[str]) -> dict[str, str]:
    pairs = [_pair(text, "--set") for text in given]
    twice = [name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i])]
    if twice:
        raise click.UsageError(f"--set {twice[0]} is given twice; give it once.")
    return dict(pairs)


def _head(schema: str, task: str, changes: Changes, seed: int | None = None) -> dict[str, Any]:
    names = ("limitlaw", "sympy", "numpy", "scipy", "torch")
    return {
        "limitlaw": metadata.version("limitlaw"),
        "schema": f"{schema}/1",
        "task": task,
        "set": dict(changes),
        "versions": {name: metadata.version(name) for name in names},
        "seed": seed,
    }


if __name__ == "__main__":
    main()
