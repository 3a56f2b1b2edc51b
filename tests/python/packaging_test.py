# SPDX-License-Identifier: Apache-2.0
"""Wheels and pip: they install and go without a trace, and originals stay what they are."""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import packages
from packages import FASHION

BUILD = pathlib.Path(os.environ["ATOLL_BINARY_DIR"]) / "python"
NAMES = {"atoll": "atoll", "tflite_runtime": "atoll-tflite-runtime",
         "ai_edge_litert": "atoll-ai-edge-litert", "pycoral": "atoll-pycoral"}
MODULES = {"atoll": "atoll", "tflite_runtime": "tflite_runtime.interpreter",
           "ai_edge_litert": "ai_edge_litert.interpreter",
           "pycoral": "pycoral.learn.imprinting.engine, pycoral.utils.edgetpu"}
# What a program sees that was not told where the build tree is.
ENVIRONMENT = {key: value for key, value in os.environ.items()
               if key not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
ENVIRONMENT.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_CACHE_DIR="1")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, timeout=600, env=ENVIRONMENT, **options)


class Packaging(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = pathlib.Path(place.name)
        # pip works for other environments from this one; to put it into each takes long.
        cls.pip_python = cls.place / "pip/bin/python"
        done = run(sys.executable, "-m", "venv", cls.place / "pip")
        if done.returncode:
            raise AssertionError(done.stderr)
        cls.wheels = {}
        for package in NAMES:
            done = run(sys.executable, "-B", BUILD / package / "atoll_wheel.py", BUILD / package,
                       cls.place / "wheels")
            if done.returncode:
                raise AssertionError(done.stderr)
            cls.wheels[package] = cls.place / "wheels" / done.stdout.strip()

    def check(self, *words, **options):
        done = run(*words, **options)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def environment(self, name):
        """The python of a new environment, which sees the system's numpy; and where it looks."""
        folder = self.place / name
        self.check(sys.executable, "-m", "venv", "--system-site-packages",
                   "--without-pip", folder)
        python = folder / "bin/python"
        site = self.check(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        return python, pathlib.Path(site.strip())

    def files(self, folder):
        return {path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    def pip(self, python, *words):
        return run(self.pip_python, "-m", "pip", "--python", python, *words)

    def install(self, python, *words):
        done = self.pip(python, "install", *words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_wheels(self):
        """They have what is said of them, and say what they have."""
        for package, wheel in self.wheels.items():
            with zipfile.ZipFile(wheel) as file:
                names = file.namelist()
                (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
                listed = [line.split(",")[0] for line in file.read(record).decode().splitlines()]
                self.assertEqual(listed, names)
                (metadata,) = (name for name in names if name.endswith("METADATA"))
                self.assertIn(f"Name: {NAMES[package]}\n", file.read(metadata).decode())
                tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
            if package == "atoll":
                self.assertEqual(tops, {"atoll"})
                self.assertIn("atoll/libatoll.so.0", names)
                self.assertRegex(wheel.name, r"-cp39-abi3-linux_\w+\.whl\Z")
            else:
                self.assertEqual(tops, {"atoll_stand_ins", f"atoll_{package}.pth"})
                self.assertRegex(wheel.name, r"-py3-none-any\.whl\Z")
        again = run(sys.executable, "-B", BUILD / "pycoral/atoll_wheel.py", BUILD / "pycoral",
                    self.place / "again").stdout.strip()
        self.assertEqual((self.place / "again" / again).read_bytes(),
                         self.wheels["pycoral"].read_bytes())

    def test_install_and_remove(self):
        python, site = self.environment("fresh")
        before = self.files(site)
        self.install(python, *self.wheels.values())
        for module in MODULES.values():
            self.check(python, "-c", f"import {module}", cwd=self.place)
        program = (f"import sys, atoll, tflite_runtime.interpreter as t\n"
                   f"i = t.Interpreter({str(FASHION)!r})\ni.allocate_tensors()\ni.invoke()\n"
                   "print(atoll.__file__)\n"
                   "print([line.split()[-1] for line in open('/proc/self/maps')"
                   " if 'libatoll.so' in line][0])")
        for line in self.check(python, "-c", program, cwd=self.place).splitlines():
            self.assertTrue(line.startswith(str(site)), line)
        self.assertNotIn("atoll", self.pip(python, "check").stdout)
        done = self.pip(python, "uninstall", "--yes", *NAMES.values())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.files(site), before)

    def test_beside_originals(self):
        """The wheel leaves the original where it is, and in front; a folder is refused."""
        python, site = self.environment("beside")
        originals = {"tflite_runtime": "tflite_runtime-2.14.0", "pycoral": "pycoral-2.0.0",
                     "ai_edge_litert": "ai_edge_litert-1.0.1"}
        for package, info in originals.items():
            (site / package).mkdir()
            (site / package / "__init__.py").write_text("original = True\n", encoding="ascii")
            (site / f"{info}.dist-info").mkdir()
            (site / f"{info}.dist-info/METADATA").write_text(
                "Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(*info.split("-")),
                encoding="ascii")
        before = self.files(site)
        self.install(python, self.wheels["atoll"])
        for package in originals:
            done = self.pip(python, "install", BUILD / package)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Atoll's stand-in is not installed beside the original",
                          done.stdout + done.stderr)
            self.install(python, self.wheels[package])
            self.check(python, "-c", f"import {package}; assert {package}.original",
                       cwd=self.place)
        after = self.files(site)
        self.assertEqual({path: after[path] for path in before}, before)
        self.pip(python, "uninstall", "--yes", *NAMES.values())
        self.assertEqual(self.files(site), before)

    def test_install_a_folder(self):
        """What lies in lib/atoll/python, with libatoll four folders up; pip alone is needed."""
        prefix = self.place / "prefix"
        for package in NAMES:
            self.check(os.environ["ATOLL_CMAKE"], "--install", BUILD.parent, "--prefix", prefix,
                       "--component", f"python_{package}")
        lib = prefix / os.environ["ATOLL_LIBDIR"]
        folders = lib / "atoll/python"
        self.assertEqual(sorted(path.name for path in folders.iterdir()), sorted(NAMES))
        for library in (BUILD / "atoll/atoll").glob("libatoll*.so.*"):
            os.symlink(library.resolve(), lib / library.name)
        python, site = self.environment("folder")
        # As it is, for one program.
        path = ":".join(str(folders / package) for package in NAMES)
        for module in MODULES.values():
            self.check(python, "-c", f"import sys; sys.path[:0] = {path!r}.split(':')\n"
                                     f"import {module}", cwd=self.place)
        self.install(python, *(folders / package for package in NAMES))
        self.assertTrue((site / "atoll/libatoll.so.0").is_file())
        self.assertTrue((site / "atoll/libatoll-quantize.so.0").is_file())
        for module in MODULES.values():
            self.check(python, "-c", f"import {module}", cwd=self.place)
        # Python finds nothing of it by itself.
        bare, _ = self.environment("bare")
        for package in NAMES:
            self.assertNotEqual(run(bare, "-c", f"import {package}", cwd=self.place).returncode, 0)


if __name__ == "__main__":
    packages.need(FASHION)
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True,
                      check=False).returncode:
        print("ATOLL-SKIPPED: python3-venv is not installed")
        sys.exit(0)
    unittest.main()
