"""The command line: one dict of commands, each a typed function that is imported only when it is called."""

import difflib
import errno
import functools
import importlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sightline import __version__
from sightline.errors import ConfigError, SightlineError, is_out_of_memory, printable


class Command(NamedTuple):
    """Where a command's function lives, as module:name, and one line about it."""

    target: str
    about: str

    def load(self) -> Callable[..., int | None]:
        module, name = self.target.split(":")
        function: Callable[..., int | None] = getattr(importlib.import_module(f"sightline.cli.{module}"), name)
        return function


COMMANDS = {
    "caption": Command("caption_command:caption", "Caption photos, with a box for every noun."),
    "index": Command("index_command:index", "Index photos, so that they are found again."),
    "search": Command("index_command:search", "Find indexed photos by words, or by a photo."),
    "ground": Command("ground_command:ground", "Show where in a photo the nouns of a sentence are."),
    "audit": Command("audit_command:audit", "Find nouns in captions that their photos do not support."),
    "serve": Command("serve_command:serve", "Show a page and answer over HTTP: caption, search, audit."),
    "extract": Command("extract_command:extract", "Write what vision sees in photos to a feature store."),
    "train": Command("train_command:train", "Train a model: a row of a recipe, or on your own photos."),
    "reproduce": Command("reproduce_command:reproduce", "Run the tables of a paper, row by row."),
    "evaluate": Command("evaluate_command:evaluate", "Measure a trained model on photos with captions."),
    "score": Command("score_command:score", "Score captions against references, without Java."),
    "likelihood": Command("likelihood_command:likelihood", "How likely a captioner finds a caption, by word."),
    "convert": Command("models_command:convert", "Convert a checkpoint that another project released."),
    "data inspect": Command("data_command:inspect", "Tell what files hold and what is wrong with them."),
    "data convert": Command("data_command:convert", "Convert features or captions to another format."),
    "data repair": Command("data_command:repair", "Drop damaged records from a feature store."),
    "data formats": Command("data_command:formats", "List the formats that can be read and written."),
    "models": Command("models_command:models", "Tell which models there are, and what a model file holds."),
    "doctor": Command("doctor_command:doctor", "Show versions, device, threads, and optional parts."),
    "completion": Command("completion_command:completion", "Print a completion script for your shell."),
}

OPTIONS = {
    "--help": "Show this, or the help of a command: sightline data inspect --help",
    "--version": "Show the version.",
    "--debug": "Show the whole traceback of an error.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `sightline ARGV…` and return the exit code: 0 done, 1 problems found, 2 bad input, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is shown with escapes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # of damaged Exif: no words for a terminal
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that unfinished files are cleared away
    try:
        return _call(arguments)() or 0
    except SightlineError as error:
        return _fail(str(error), 2, debug)
    except KeyboardInterrupt as stop:
        usual = "Interrupted. Nothing is half-written; run the same command again to go on."
        return _fail(str(stop) or usual, 130, debug)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if is_out_of_memory(error):
            fix = "close other programs, or give --threads 1; on a GPU, a smaller batch or --device cpu"
            why = f" ({error})" if str(error) else ""
            return _fail(f"there is not enough memory{why}. To fix: {fix}.", 2, debug)
        if not isinstance(error, OSError):  # the last resort: a defect of ours still gives a sentence, not a traceback
            return _fail(f"Unexpected {type(error).__name__}: {error}. Run again with --debug and report it.", 1, debug)
        hint = " Free some space and run the same command again." if error.errno == errno.ENOSPC else ""
        return _fail(f"{error.filename or 'system'}: {error.strerror or error}.{hint}", 2, debug)


def _call(arguments: list[str]) -> Callable[[], int | None]:
    """The call that the arguments ask for; a command's function is imported, and its arguments are read."""
    if arguments[1:] and arguments[0] in ("--help", "-h", "help"):
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        return functools.partial(print, overview())
    if arguments[0] in ("--version", "-V"):
        return functools.partial(print, f"sightline {__version__}")
    name, rest = _find(arguments)
    if name is None:
        return functools.partial(print, overview(arguments[0]))
    function = COMMANDS[name].load()
    from sightline.cli.console import bind

    return bind(function, name, rest)


def _find(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The command the arguments begin with and what follows; None for a group without a command, such as `data`."""
    for size in (2, 1):
        name = " ".join(arguments[:size])
        if len(arguments) >= size and name in COMMANDS:
            return name, arguments[size:]
    group = [name for name in COMMANDS if name.split()[0] == arguments[0]]
    if group and (len(arguments) == 1 or arguments[1] in ("--help", "-h")):
        return None, []
    wanted = " ".join(a for a in arguments[:2] if not a.startswith("-")) if group else arguments[0]
    near = difflib.get_close_matches(wanted, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean `sightline {near[0]}`? " if near else ""
    raise ConfigError(f"there is no command {wanted!r}", fix=f"{hint}`sightline --help` lists the commands")


def overview(group: str = "") -> str:
    """The text of `sightline --help`, or of one group of commands."""
    chosen = {name: command for name, command in COMMANDS.items() if not group or name.split()[0] == group}
    width = max(map(len, [*chosen, *OPTIONS])) + 2
    lines = [f"usage: sightline {group + ' ' if group else ''}COMMAND [options]", ""]
    if not group:
        lines += ["Captions photos, shows where each word came from, and finds photos by words.", ""]
    lines += ["commands:", *(f"  {name:<{width}}{command.about}" for name, command in chosen.items()), ""]
    lines += ["options:", *(f"  {name:<{width}}{about}" for name, about in OPTIONS.items())]
    return "\n".join(lines)


def _fail(sentence: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{red}{printable(sentence)}{plain}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
