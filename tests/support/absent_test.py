# SPDX-License-Identifier: Apache-2.0
"""What becomes of tests in Python that need something absent."""
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = """
import unittest
from absent import absent

class A(unittest.TestCase):
    def test_needs_a_tool(self):
        absent("a tool")
    def test_needs_data(self):
        absent("models", is_reference=True)
    def test_is_left_out(self):
        self.skipTest("too slow")
    def test_more(self):
        self.assertTrue(%s)

unittest.main()
"""


class Absent(unittest.TestCase):
    def run_program(self, is_right, require):
        return subprocess.run(
            [sys.executable, "-B", "-c", PROGRAM % is_right], check=False, text=True,
            capture_output=True, env={**os.environ, "ATOLL_REQUIRE_SHARED": require,
                                      "PYTHONPATH": str(pathlib.Path(__file__).parent)})

    def test_the_last_line_says_what(self):
        done = self.run_program(is_right=True, require="0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "ATOLL-SKIPPED: absent: a tool; reference data: models\n")

    def test_a_failure_is_no_skipping(self):
        done = self.run_program(is_right=False, require="0")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")

    def test_reference_data_may_have_to_be_there(self):
        done = self.run_program(is_right=True, require="1")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("models is absent, but ATOLL_REQUIRE_SHARED is on", done.stderr)


if __name__ == "__main__":
    unittest.main()
