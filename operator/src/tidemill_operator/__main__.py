"""`python -m tidemill_operator`: the operator's command line."""

from __future__ import annotations

import asyncio
import os
import sys

from tidemill_operator.apply.api import ApiFailure
from tidemill_operator.handlers import finalizers, logs, options, process


def main() -> None:
    """Run what the command line asks for; the process ends with its exit code."""
    found = options.parse(sys.argv[1:])
    logs.configure(found.log_level)
    command = finalizers.release if found.command == "release" else process.run
    try:
        code = asyncio.run(command(found))
    except ApiFailure as error:
        sys.exit(f"tidemill-operator: {error.message}")
    sys.stderr.flush()
    # Threads of libraries must not hold up the next replica.
    os._exit(code)


if __name__ == "__main__":
    main()
