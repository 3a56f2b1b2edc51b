# SPDX-License-Identifier: Apache-2.0
"""usage: snippets_test.py SOURCE BUILD SHARED CMAKE CC CXX [EMULATOR]

What README and the pages say is true of an installed Atoll: programs in C and C++ compile word for
word, by the lines for make and CMake of the same pages, and end well or with a sentence; commands
have the options that they are shown with, and run where their files are there; links lead
somewhere; the examples build.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, SHARED, CMAKE, CC, CXX = (pathlib.Path(a) for a in sys.argv[1:7])
EMULATOR = sys.argv[7:8]
sys.path.insert(0, str(SOURCE / "tests/support"))
from absent import absent  # noqa: E402
PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
MODEL = SOURCE / "models/fashion/fashion_int8.tflite"
# Without end, for a terminal, or about what a test does not have.
NOT_RUN = re.compile(r"--serve|--source|camera|\btop\b|usb|--coral|--root|seed:|sudo|replay"
                     r"|\bbroker\b|\bserve\b|\bworker\b|\bfleet\b")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, timeout=600, **options)


def fences(language):
    """(page, text) of every block of code in that language, on all pages."""
    for page in PAGES:
        for text in re.findall(rf"(?ms)^```{language}\n(.*?)^```", page.read_text()):
            yield page, text


def commands():
    """(page, words after `atoll`) of every command that is shown, with the first line of its pipe."""
    for page in PAGES:
        for block in re.findall(r"(?ms)^```\n(.*?)^```", page.read_text()):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                for words in re.findall(r"(?:^|\$ |&& |\| )(?:\w+=\S+ )?atoll ([a-z][^|&#>]*)", line):
                    yield page, words.split()


class Snippets(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = pathlib.Path(place.name)
        cls.prefix = cls.place / "prefix"
        done = run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        cls.lib = next(cls.prefix.rglob("libatoll.so")).parent
        cls.docs = cls.prefix / "share/doc/atoll"
        cls.atoll = [*EMULATOR, cls.prefix / "bin/atoll"]
        cls.environment = {**os.environ, "PKG_CONFIG_PATH": str(cls.lib / "pkgconfig"),
                           "LD_LIBRARY_PATH": str(cls.lib), "ATOLL_PROGRESS": "off"}

    def folder(self, name):
        path = self.place / name
        path.mkdir()
        return path

    def check(self, *words, **options):
        done = run(*words, **options)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done

    def test_table_of_subcommands(self):
        """docs/command.md has a line for each."""
        names = set(re.findall(r"(?m)^@ ([a-z]\S*)", (SOURCE / "tools/atoll/help.txt").read_text()))
        table = set(re.findall(r"(?m)^\| `atoll ([a-z]\S*?)[` ]",
                               (SOURCE / "docs/command.md").read_text()))
        self.assertGreater(len(table), 20)
        self.assertEqual(names - {"atoll", "pictures"}, table)

    def check_program(self, program, folder):
        """Without a model, with the bundled one, and with others: a result or a sentence."""
        absent = run(*EMULATOR, program, cwd=folder, env=self.environment)
        self.assertEqual((absent.returncode, absent.stdout), (1, ""), absent.stderr)
        self.assertRegex(absent.stderr, r"\Acannot open model 'model.tflite': [^\n]*\n\Z")
        shutil.copy(MODEL, folder / "model.tflite")
        good = self.check(*EMULATOR, program, cwd=folder, env=self.environment)
        self.assertNotEqual(good.stdout, "")
        for other in (SOURCE / "models/scenes/scenes_int8.tflite", SOURCE / "README.md"):
            shutil.copy(other, folder / "model.tflite")
            done = run(*EMULATOR, program, cwd=folder, env=self.environment)
            self.assertIn(done.returncode, (0, 1), f"{other}: {done.stderr}")
            if done.returncode:
                self.assertRegex(done.stderr, r"\A[^\n]+\n\Z")

    def test_c(self):
        """By the lines for make."""
        for program in ("make", "pkg-config"):
            if not shutil.which(program):
                absent(program)
        (_, make), = fences("make")
        programs = list(fences("c"))
        self.assertGreater(len(programs), 0)
        for number, (page, text) in enumerate(programs):
            folder = self.folder(f"c{number}")
            (folder / "program.c").write_text(text)
            (folder / "Makefile").write_text(
                f"{make}\nCFLAGS = -std=c99 -pedantic -Wall -Wextra -Werror\nprogram: program.c\n")
            self.check("make", f"CC={CC}", cwd=folder, env=self.environment)
            with self.subTest(page.name):
                self.check_program(folder / "program", folder)

    def test_cpp(self):
        """By the lines for CMake."""
        (_, cmake), = fences("cmake")
        programs = [(page, text) for page, text in fences("cpp") if "int main" in text]
        self.assertGreater(len(programs), 0)
        for number, (page, text) in enumerate(programs):
            folder = self.folder(f"cpp{number}")
            (folder / "program.cc").write_text(text)
            (folder / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.16)\nproject(program LANGUAGES C CXX)\n"
                "set(CMAKE_CXX_STANDARD 20)\nadd_compile_options(-Wall -Wextra -Werror)\n"
                f"add_executable(program program.cc)\n{cmake}")
            self.configure(folder, folder / "build")
            self.check(CMAKE, "--build", folder / "build")
            with self.subTest(page.name):
                self.check_program(folder / "build/program", folder)

    # What stands around a piece of a program that has this in it.
    SURROUNDINGS = {
        "StreamServer": """
#include <cstdio>
#include "atoll/camera.h"
int Fail(const std::string& message);
int Program(atollrt::Pipeline* pipeline, atollrt::PipelineOptions& pipeline_options) {
%s
  return 0;
}""",
        "OpenFrameSource": """
#include <cstdio>
#include "atoll/camera.h"
int Program(AtollInterpreter* interpreter, const std::vector<std::string>& labels) {
%s
  return report.end.ok() ? 0 : 1;
}""",
    }

    def test_pieces_in_cpp(self):
        """With what an installed Atoll has; they are not whole, so they do not run."""
        includes = [f"-I{self.prefix / 'include'}"]
        for number, (page, text) in enumerate(fences("cpp")):
            if "int main" in text:
                continue
            around, = (value for key, value in self.SURROUNDINGS.items() if key in text)
            own = "".join(re.findall(r"(?m)^#include .*\n", text))
            piece = self.place / f"piece{number}.cc"
            piece.write_text(own + around % text.replace(own, ""))
            with self.subTest(page.name):
                self.check(CXX, "-std=c++20", "-Wall", "-Wextra", "-fsyntax-only", *includes, piece)

    def configure(self, source, build):
        self.check(CMAKE, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}", "-G",
                   "Unix Makefiles")

    def test_examples(self):
        """What is installed is all that the programs are made of."""
        build = self.place / "examples"
        self.configure(self.docs / "examples", build)
        self.check(CMAKE, "--build", build, "-j2")
        share = self.prefix / "share/atoll"
        done = self.check(*EMULATOR, build / "classify_image",
                          share / "fashion_int8.tflite", share / "ankle_boot.pgm",
                          share / "fashion_labels.txt", env=self.environment)
        self.assertIn("Ankle boot", done.stdout)
        done = self.check(*EMULATOR, build / "classify_camera", share / "fashion_int8.tflite",
                          share / "fashion_labels.txt", "test", "3", env=self.environment)
        self.assertIn("3 captured = 3 processed", done.stdout)

    def test_commands_have_their_options(self):
        helps = {}
        count = 0
        for page, words in commands():
            if words[0] not in helps:
                done = run(*self.atoll, words[0], "--help", env=self.environment)
                helps[words[0]] = done.stdout
                if done.stderr.startswith("atoll: there is no atoll-"):  # an optional program
                    helps[words[0]] = None
            if helps[words[0]] is None:
                continue
            known = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helps[words[0]])
            self.assertTrue(known, f"{page.name}: there is no 'atoll {words[0]}'")
            for word in words:
                option = re.match(r"--?[a-z][a-z-]*", word)
                if word == "--":  # the words behind it are another command's
                    break
                if option:
                    self.assertIn(option.group(), known, f"{page.name}: atoll {' '.join(words)}")
            count += 1
        self.assertGreater(count, 30)

    def test_commands_run(self):
        """Those of the README and of devices.md whose files come with Atoll."""
        folder = self.folder("commands")
        for name in ("models", "tests"):
            (folder / name).symlink_to(SOURCE / name)
        count = 0
        for page, words in commands():
            files = [word for word in words if re.search(r"\.(tflite|onnx|npz|json|pgm|txt|jpe?g|bmp|png|s|atx)$",
                                                         word)]
            if NOT_RUN.search(" ".join(words)) or "..." in words or page.name == "isa.md":
                continue
            outputs = {words[i + 1] for i in range(len(words) - 1)
                       if words[i] in ("--output", "-o", "--report", "--trace", "--save")}
            if any(not (folder / file).exists() for file in files if file not in outputs):
                continue
            if words[0] == "benchmark" and "compare" in words:
                continue
            with self.subTest(f"{page.name}: atoll {' '.join(words)}"):
                self.check(*self.atoll, *words, cwd=folder, env=self.environment)
            count += 1
        self.assertGreater(count, 3)

    def test_links(self):
        done = run(sys.executable, SOURCE / "tests/lint/check_links.py", self.docs)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_public_files_are_where_they_were_seen(self):
        """Addresses of models name a repository, a commit and a path of the list of those at hand."""
        text = (SOURCE / "README.md").read_text()
        variables = dict(re.findall(r"(?m)^\$ (\w+)=(https:\S+)$", text))
        addresses = re.findall(r"\$(\w+)/(\S+)", "\n".join(
            line for line in text.splitlines() if line.startswith("$ curl")))
        self.assertGreater(len(addresses), 2)
        for variable, _ in addresses:
            self.assertIn(variable, variables)
        lists = [SHARED / "models/MANIFEST.md", SHARED / "images/MANIFEST.md"]
        if not all(path.exists() for path in lists):
            absent("models", is_reference=True)
        seen = "".join(path.read_text() for path in lists)
        for variable, path in addresses:
            _, _, _, owner, repository, commit = variables[variable].split("/")
            self.assertIn(f"github.com/{owner}/{repository} at `{commit}`", seen)
            self.assertIn(f"{owner}/{repository}: `{path}`", seen)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
