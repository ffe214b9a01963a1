"""`whence --completion SHELL`: a script that teaches a shell the commands and options, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

BASH = """\
_whence() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$cur")); return
  fi
  case "${{COMP_WORDS[1]}} $prev" in
{choices}
  esac
  if [ -z "$words" ]; then
    case "${{COMP_WORDS[1]}}" in
{options}
    esac
    [[ "$cur" == -* ]] || {{ COMPREPLY=($(compgen -f -- "$cur")); return; }}
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o filenames -F _whence whence
"""


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """The script for this shell."""
    commands = commands_of(top)
    return _fish(commands) if shell == "fish" else _bash(commands, zsh=shell == "zsh")


def commands_of(top: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The commands by their names."""
    found = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    choices: Mapping[str, argparse.ArgumentParser] = found.choices
    return choices


def options_of(command: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """What begins with a dash, --help left out."""
    return (a for a in command._actions if a.option_strings and not isinstance(a, argparse._HelpAction))


def _bash(commands: Mapping[str, argparse.ArgumentParser], zsh: bool) -> str:
    options, choices = [], []
    for name, command in commands.items():
        words = " ".join(a.option_strings[-1] for a in options_of(command))
        options.append(f'      {name}) words="{words} --help" ;;')
        for action in command._actions:
            if action.choices:  # those of an argument are offered right after the command
                before = action.option_strings[-1] if action.option_strings else name
                choices.append(f"""    '{name} {before}') words="{" ".join(map(str, action.choices))}" ;;""")
    script = BASH.format(commands=" ".join(commands), options="\n".join(options), choices="\n".join(choices))
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def _fish(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    lines = [f"complete -c whence -n __fish_use_subcommand -f -a {name}" for name in commands]
    for name, command in commands.items():
        for action in options_of(command):
            among = f" -x -a '{' '.join(map(str, action.choices))}'" if action.choices else ""
            long, seen = action.option_strings[-1].removeprefix("--"), f"'__fish_seen_subcommand_from {name}'"
            lines.append(f"complete -c whence -n {seen} -l {long}{among}")
    return "\n".join(lines) + "\n"
