"""The cases of a client program, and their runner.

A program creates a `CaseList`, and decorates each case with it. `run` calls the cases in order.
Each case prints a line; the last line counts passed, failed and skipped cases.
"""

import sys
import traceback


class CaseList:
    def __init__(self, title="Python"):
        self.title = title
        self.functions = []

    def __call__(self, function):
        """Adds a case; its name is that of the function."""
        self.functions.append(function)
        return function

    def run(self, *arguments, after=lambda: None):
        """Runs each case with these arguments, and then `after`. Returns the exit code."""
        failed = 0
        for function in self.functions:
            name = f"{self.title}: {function.__name__.replace('_', ' ')}"
            try:
                function(*arguments)
            except Exception:
                failed += 1
                print(f"FAILED {name}")
                traceback.print_exc(file=sys.stdout)
            else:
                print(f"ok {name}")
            after()
        print(f"{len(self.functions) - failed} passed, {failed} failed, 0 skipped")
        return 1 if failed else 0


def expect(seen, wanted):
    if seen != wanted:
        raise AssertionError(f"{seen!r} is not {wanted!r}")


def fails(kinds, work):
    """Returns the error of one of these kinds with which the work fails."""
    try:
        result = work()
    except kinds as error:
        return error
    raise AssertionError(f"{result!r} instead of {kinds}")
