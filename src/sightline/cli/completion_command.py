"""`sightline completion`: a script that teaches the shell our commands and their options."""

from typing import Literal

from sightline.cli.console import options

_BASH = """\
_sightline() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" choices=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    choices="{first} --help --version"
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$choices" -- "$current"))
}}
complete -o default -o bashdefault -F _sightline sightline
"""


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a completion script for your shell.

    Load it with `source <(sightline completion bash)` (or zsh), or `sightline completion fish | source`; put that line
    into your shell's start-up file to keep it.
    """
    from sightline.cli.commands import COMMANDS

    flags = {
        name: [*(option.flags[-1] for option in options(command.load()) if option.flags), "--help"]
        for name, command in COMMANDS.items()
    }
    if shell == "fish":
        print(_fish(flags))
    else:
        start = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
        print(start + _bash(flags))


def _bash(options: dict[str, list[str]]) -> str:
    groups: dict[str, list[str]] = {}
    for name in options:
        head, _, tail = name.partition(" ")
        groups.setdefault(head, []).extend([tail] if tail else [])
    cases = []
    for name, flags in options.items():
        cases.append(f'      "{name}"{"" if " " in name else "*"}) choices="{" ".join(flags)}" ;;')
    for head, tails in groups.items():
        if tails:
            cases.append(f'      "{head} "*) choices="{" ".join(tails)}" ;;')
    return _BASH.format(first=" ".join(groups), cases="\n".join(cases))


def _fish(options: dict[str, list[str]]) -> str:
    lines = []
    for name, flags in options.items():
        head, _, tail = name.partition(" ")
        lines.append(f"complete -c sightline -n __fish_use_subcommand -a {head}")
        seen = f'-n "__fish_seen_subcommand_from {head}"'
        if tail:
            lines.append(f"complete -c sightline {seen} -a {tail}")
        for flag in flags:
            lines.append(f"complete -c sightline -n \"string match -q '*{name}*' (commandline)\" -l {flag[2:]}")
    return "\n".join(dict.fromkeys(lines))
