"""The commands of `python -m app`, and what their exit codes mean."""

import asyncio
import re
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from app import VERSION
from app.cli import actions, checks, events, orders, processes, systems, tasks
from app.cli.opened import CannotRun
from app.cli.output import CANNOT_RUN, Output, complain

CONFIG_REFUSED, TERMINATED = 2, 128 + signal.SIGTERM

EPILOG = """
[bold]A first evening:[/] python -m app demo. Each command tells more with --help.

[bold]In a shell that completes:[/] ./orders is the same under one name; ./orders --install-completion

[bold]Exit codes[/]

  0  done; or the answer is yes

  1  the answer is no: an invariant is violated, a system is down, not every order of the demo was completed

  2  the command line or the configuration is refused

  3  it cannot be done here and now; what was not done is named

130, 143  ended by Ctrl-C or SIGTERM; demo and serve, which end no other way, return 0

141  whoever read the output has gone
"""

NAMED = Path(sys.argv[0]).name == "orders"
"""Whether the command is known under one name: shells complete nothing else."""

RUN, OPERATE, CHECK = "Run", "Operate", "Check"


class Group(TyperGroup):
    """typer passes on what pydantic says; here it speaks as it does of the configuration."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = re.sub("^Input should ", "must ", error.message.removeprefix("Value error, "))
            raise


commands = typer.Typer(
    cls=Group,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=NAMED,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(VERSION)
        raise typer.Exit


@commands.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Takes orders in and brings each of them to its end."""


commands.command("demo", rich_help_panel=RUN, epilog=processes.DEMO_EXAMPLES)(processes.demo)
commands.command("serve", rich_help_panel=RUN, epilog=processes.SERVE_EXAMPLES)(processes.serve)
commands.command("migrate", rich_help_panel=RUN)(processes.migrate_schema)
commands.command("sandbox", rich_help_panel=RUN, epilog=processes.SANDBOX_EXAMPLES)(processes.sandbox)
commands.add_typer(orders.commands, name="orders", rich_help_panel=OPERATE)
commands.add_typer(tasks.commands, name="tasks", rich_help_panel=OPERATE)
commands.add_typer(events.commands, name="events", rich_help_panel=OPERATE)
commands.command("systems", rich_help_panel=OPERATE, epilog=systems.EXAMPLES)(systems.show_systems)
commands.command("actions", rich_help_panel=OPERATE, epilog=actions.EXAMPLES)(actions.list_actions)
commands.command("check-config", rich_help_panel=CHECK, epilog=checks.CONFIG_EXAMPLES)(checks.check_config)
commands.command("invariants", rich_help_panel=CHECK)(checks.check_invariants)
commands.command("openapi", rich_help_panel=CHECK, epilog=checks.OPENAPI_EXAMPLES)(checks.openapi)


def main() -> None:
    """Run the command that the arguments name. What is in its way is told in words, and by the exit code."""
    try:
        with redirect_stdout(Output(sys.stdout)):
            commands()
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
    except CannotRun as error:
        _end(error, CANNOT_RUN)
    except Exception as error:
        from app.embedded import EmbeddedPostgresError
        from app.occupied import Occupied
        from app.refused import DatabaseRefused
        from app.settings import ConfigError

        match error:
            case ConfigError():
                _end(error, CONFIG_REFUSED)
            case DatabaseRefused() | EmbeddedPostgresError() | Occupied():
                _end(error, CANNOT_RUN)
        raise


def _end(error: Exception, code: int) -> NoReturn:
    complain(error)
    sys.exit(code)
