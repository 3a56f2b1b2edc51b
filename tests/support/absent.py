# SPDX-License-Identifier: Apache-2.0
"""Says that something a test needs is absent here, as absent.h does for tests in C++.

If no test of the program fails, it ends with the line "ATOLL-SKIPPED: ...", and ctest calls the suite
skipped, which continuous integration takes for a failure. The line must not come earlier: ctest would
call a suite skipped even if another test of it failed. A test that is left out for any other reason
says so by unittest's skipTest.
"""
import os
import unittest

_things = []


def absent(what, is_reference=False):
    """Ends the test, or the class, as skipped; as failed if reference data must be there."""
    if is_reference:
        if os.environ.get("ATOLL_REQUIRE_SHARED") == "1":
            raise AssertionError(f"{what} is absent, but ATOLL_REQUIRE_SHARED is on")
        what = f"reference data: {what}"
    if what not in _things:
        _things.append(what)
    raise unittest.SkipTest(f"absent: {what}")


class _Result(unittest.TextTestResult):
    def stopTestRun(self):
        super().stopTestRun()
        if _things and self.wasSuccessful():
            self.stream.flush()
            print(f"ATOLL-SKIPPED: absent: {'; '.join(_things)}", flush=True)


unittest.TextTestRunner.resultclass = _Result
