"""`whence --completion SHELL`: a script that teaches a shell the commands and options, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

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


class Completion(argparse.Action):
    """`--completion SHELL`: print the script and stop."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: Any, option: Any = None) -> None:
        print(script(parser, values), end="")
        parser.exit()


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """The script for this shell; zsh reads that of bash."""
    options, choices = [], []
    commands = commands_of(top)
    for name, command in commands.items():
        words = " ".join(a.option_strings[-1] for a in options_of(command))
        options.append(f'      {name}) words="{words} --help" ;;')
        for action in command._actions:
            if action.choices:  # those of an argument are offered right after the command
                before = action.option_strings[-1] if action.option_strings else name
                choices.append(f"""    '{name} {before}') words="{" ".join(map(str, action.choices))}" ;;""")
    bash = BASH.format(commands=" ".join(commands), options="\n".join(options), choices="\n".join(choices))
    return bash if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{bash}"


def commands_of(top: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The commands by their names."""
    found = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    choices: Mapping[str, argparse.ArgumentParser] = found.choices
    return choices


def options_of(command: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """What begins with a dash, --help left out."""
    return (a for a in command._actions if a.option_strings and not isinstance(a, argparse._HelpAction))
