"""`whence completion SHELL`: a script that teaches a shell the commands and options, made from the parser itself."""

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


def completion(args: argparse.Namespace) -> int:
    """Print the script."""
    from whence.cli.parser import parser

    commands = _commands(parser())
    print(_fish(commands) if args.shell == "fish" else _bash(commands, zsh=args.shell == "zsh"), end="")
    return 0


def _commands(top: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            choices: Mapping[str, argparse.ArgumentParser] = action.choices
            return choices
    return {}


def _options(command: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options of a command and of its own sub-commands."""
    for action in command._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield action
    for sub in _commands(command).values():
        yield from _options(sub)


def _bash(commands: Mapping[str, argparse.ArgumentParser], zsh: bool) -> str:
    options, choices = [], []
    for name, command in commands.items():
        words = dict.fromkeys(s for a in _options(command) for s in a.option_strings if s.startswith("--"))
        options.append(f'      {name}) words="{" ".join([*_commands(command), *words])}" ;;')
        for action in _options(command):
            if action.choices:
                pattern = "|".join(f"'{name} {s}'" for s in action.option_strings)
                choices.append(f'    {pattern}) words="{" ".join(map(str, action.choices))}" ;;')
    script = BASH.format(commands=" ".join(commands), options="\n".join(options), choices="\n".join(choices))
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def _fish(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    lines = [f"complete -c whence -n __fish_use_subcommand -f -a {name}" for name in commands]
    for name, command in commands.items():
        for action in _options(command):
            long = next((s[2:] for s in action.option_strings if s.startswith("--")), None)
            if long is not None:
                told = (action.help or "").replace("%%", "%").replace("'", "\\'")
                among = f" -x -a '{' '.join(map(str, action.choices))}'" if action.choices else ""
                lines.append(f"complete -c whence -n '__fish_seen_subcommand_from {name}' -l {long}{among} -d '{told}'")
    return "\n".join(lines) + "\n"
