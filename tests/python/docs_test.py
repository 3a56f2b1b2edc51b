# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/python.md run one after the other, as they stand."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from packages import FASHION, SOURCE


class Page(unittest.TestCase):
    def test_programs(self):
        page = (SOURCE / "docs/python.md").read_text(encoding="utf-8")
        programs = re.findall(r"(?ms)^```python\n(.*?)^```", page)
        self.assertGreater(len(programs), 4)
        for edge_tpu in ("0", "1"):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(FASHION, folder + "/model.tflite")
                done = subprocess.run(
                    [sys.executable, "-"], input="\n".join(programs), capture_output=True,
                    text=True, check=False, cwd=folder, timeout=300,
                    env={**os.environ, "ATOLL_EDGETPU_EMULATE": edge_tpu})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"not there: .*absent\.tflite.*\nwrong: .*\nwrong: .*emu")


if __name__ == "__main__":
    unittest.main()
