"""Runs a program, and measures its time, its processor time and its peak memory.

measured_run.py PROGRAM ARGUMENT... ends with the exit code of the program, after a last line
NAME=VALUE with tabs between: `seconds`, `processor_seconds` and `memory_bytes`.
"""

import os
import sys
import time


def main():
    start = time.monotonic()
    process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
    _, status, usage = os.wait4(process, 0)
    seconds = time.monotonic() - start
    # Only macOS counts in bytes.
    memory_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = {
        "seconds": seconds,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "memory_bytes": memory_bytes,
    }
    print("\t".join(f"{name}={value}" for name, value in line.items()), flush=True)
    # A signal has a negative number, as with the module `subprocess`.
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
