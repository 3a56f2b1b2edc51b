# SPDX-License-Identifier: Apache-2.0
"""libedgetpu.so.1 under TensorFlow Lite: programs for an Edge TPU, with a stand-in for libusb-1.0 that
has a Coral on its bus (tools/coral-stub of the reference data). What reaches the bus must be what
the original library sends, and outputs the bytes that it delivers.

On PCIe the stand-in is one for /dev/apex_0, or for a Coral that vfio-pci has.

Environment beyond that of tflite_programs.py: ATOLL_RUN_EDGETPU, the program; ATOLL_EDGETPU, the
library; ATOLL_CORAL_STUB, the folder of the built stand-in for libusb; ATOLL_APEX_STUB, that for a
Coral on PCIe.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from tflite_programs import (DELEGATE, EMULATOR, ORIGINAL_LIBRARIES, SHARED, SOURCE, STAND_IN,
                             equal_to_golden, golden_models, need_original, need_shared, run_model,
                             skip)

RUN_EDGETPU = os.environ["ATOLL_RUN_EDGETPU"]
LIBRARY = pathlib.Path(os.environ["ATOLL_EDGETPU"])
STUB = os.environ.get("ATOLL_CORAL_STUB", "")
APEX_STUB = os.environ.get("ATOLL_APEX_STUB", "")
WIRE = SHARED / "golden/coral-wire"
PCIE = SHARED / "golden/coral-pcie"
COMPARE = SHARED / "tools/coral-stub/compare_trace.py"
COMPARE_PCIE = SHARED / "tools/coral-stub/compare_apex.py"
SMALL = SHARED / "models/hello_world_int8.tflite"
FASHION = SOURCE / "models/fashion/fashion_int8.tflite"
# The published firmware has this digest. Any image of that size does for the stand-in.
FIRMWARE_BYTES = 10783
FIRMWARE_SHA256 = "3b07311b174b81fd14fd2c887f40d646c0ebf2f140cc5ee5cf8befa0f3e3dc7f"
# Nothing of the surroundings says what a device is.
PLAIN = {name: value for name, value in os.environ.items()
         if name not in ("ATOLL_DEVICE", "ATOLL_EDGETPU_EMULATE", "ATOLL_MODEL_PATH")}


def model_path(name):
    return SHARED / f"models/edgetpu/{name}_edgetpu.tflite"


def run(way, *arguments, runtime=ORIGINAL_LIBRARIES, stub=False, timeout=300, **environment):
    """The ended program run_edgetpu with that folder's TensorFlow Lite."""
    folders = [str(runtime), str(LIBRARY.parent)] + ([STUB] if stub else [])
    return subprocess.run(
        [*EMULATOR, RUN_EDGETPU, way, *map(str, arguments)], capture_output=True, check=False,
        timeout=timeout, env={**PLAIN, "LD_LIBRARY_PATH": ":".join(folders),
                              "ATOLL_ACTIVITY": "off", **environment})


class TracedTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def check_outputs(self, golden, scenario, done):
        """Whether the model is one that runs; else that it was refused."""
        events = [json.loads(line) for line in
                  (golden / f"{scenario['name']}.outputs").read_text().splitlines()] \
            if scenario["models"] else []
        if any(e["event"] == "prepare" and e["status"] != 0 for e in events):
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(b"TfLiteInterpreterAllocateTensors failed", done.stderr)
            return False
        self.assertEqual(done.returncode, 0, done.stderr)
        outputs, rest = [], done.stdout
        for event in events:
            for output in event.get("outputs", []):
                outputs.append((hashlib.sha256(rest[:output["bytes"]]).hexdigest(),
                                output["sha256"]))
                rest = rest[output["bytes"]:]
        self.assertEqual(rest, b"")
        self.assertEqual([got for got, _ in outputs], [want for _, want in outputs])
        return True

    def compare(self, program, trace, log):
        compared = subprocess.run(
            [sys.executable, "-B", str(program), "--mode", "essential", str(trace), str(log)],
            capture_output=True, check=False, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)


class WireTest(TracedTest):
    RUNTIME = STAND_IN
    WAYS = ("plugin", "c", "custom")
    SCENARIOS = None  # all

    def setUp(self):
        if not STUB:
            skip("the stand-in for libusb is not built: the reference data or libusb is absent")
        need_shared(WIRE / "manifest.json")
        need_shared(COMPARE)
        if self.RUNTIME == ORIGINAL_LIBRARIES:
            need_original()
        self.manifest = json.loads((WIRE / "manifest.json").read_text())
        super().setUp()
        self.firmware = self.directory / "firmware.bin"
        self.firmware.write_bytes(bytes(i * i % 251 for i in range(FIRMWARE_BYTES)))

    def check(self, scenario, way):
        log = self.directory / "log"
        arguments = []
        for option in scenario["options"]:
            arguments += ["--option", option]
        # Options are for a device that is named; one that is first by its number is.
        arguments += ["--device", ":0"] if scenario["options"] and way == "plugin" else []
        if scenario["models"]:
            arguments += ["--order", ",".join(map(str, scenario["order"])),
                          "--seed", ",".join(map(str, scenario["seeds"]))]
        done = run(way, *arguments, *map(model_path, scenario["models"]), runtime=self.RUNTIME,
                   stub=True, FAKEUSB_LOG=str(log), FAKEUSB_MODE=scenario["mode"],
                   FAKEUSB_SPEED=scenario["speed"], ATOLL_CORAL_FIRMWARE=str(self.firmware),
                   FAKEUSB_PLAN=":".join(str(WIRE / self.manifest["models"][m]["plan"])
                                         for m in scenario["models"]))
        if not self.check_outputs(WIRE, scenario, done):
            return
        trace = self.directory / "golden.trace"
        trace.write_text((WIRE / f"{scenario['name']}.trace").read_text().replace(
            FIRMWARE_SHA256, hashlib.sha256(self.firmware.read_bytes()).hexdigest()))
        self.compare(COMPARE, trace, log)

    def test_every_scenario(self):
        compared = 0
        for scenario in self.manifest["scenarios"]:
            if self.SCENARIOS is not None and scenario["name"] not in self.SCENARIOS:
                continue
            if not all(model_path(m).exists() for m in scenario["models"]):
                continue
            for way in self.WAYS:
                if way == "custom" and scenario["options"]:
                    continue  # it has no options
                with self.subTest(scenario["name"], way=way):
                    self.check(scenario, way)
                    compared += 1
        self.assertGreater(compared, 0)


class Wire(WireTest):
    RUNTIME = ORIGINAL_LIBRARIES


class Faults(WireTest):
    """What cannot work ends in a sentence, whatever the way, and never in a crash."""
    RUNTIME = ORIGINAL_LIBRARIES
    test_every_scenario = None
    NAME = "mobilenet_v1_0.25_128_quant"

    def run_model(self, way, *arguments, mode="app", **environment):
        need_shared(model_path(self.NAME))
        return run(way, *arguments, model_path(self.NAME), stub=True, FAKEUSB_LOG="/dev/null",
                   FAKEUSB_MODE=mode, FAKEUSB_PLAN=str(WIRE / f"plans/{self.NAME}.plan"),
                   HOME=str(self.directory), XDG_DATA_HOME=str(self.directory),
                   XDG_DATA_DIRS="/nowhere", **environment)

    def expect_refused(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in words:
            self.assertIn(word.encode(), done.stderr)

    def test_a_device_that_is_pulled(self):
        for way in self.WAYS:
            self.expect_refused(
                self.run_model(way, "--order", "0,0,0", FAKEUSB_FAULT="unplug:10:-1"),
                "Atoll: ", "usb:2-3", "TfLiteInterpreterInvoke failed")

    def test_a_device_that_cannot_be_opened(self):
        for way in self.WAYS:
            done = self.run_model(way, "--order", "0", FAKEUSB_FAULT="control:1:-1:100000")
            self.expect_refused(done, "no device" if way == "custom" else "usb:2-3")

    def test_a_device_without_firmware(self):
        for way in ("plugin", "c"):
            self.expect_refused(self.run_model(way, "--order", "0", mode="rom"),
                                "apex_latest_single_ep.bin")

    def test_what_can_be_overcome_is(self):
        for way in self.WAYS:
            done = self.run_model(way, "--order", "0,0,0", FAKEUSB_FAULT="unplug:5:300:app")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_threads_share_a_device(self):
        for way in self.WAYS:
            others = [model_path(self.NAME)] * 3
            done = self.run_model(way, "--threads", "--order", "0,0,0,0,0,0,0,0", *others)
            self.assertEqual(done.returncode, 0, done.stderr)


class WireOfTheStandIn(WireTest):
    """Our own libtensorflowlite_c takes the device of a delegate, and has the operator itself."""
    WAYS = ("plugin", "c")
    SCENARIOS = ("open_app", "rom_to_inference", "open_clock_low", "mobilenet_v1_0.25_128_seeds",
                 "split_concat", "cocompiled_pair", "ssd_v1_segments")


class PcieTest(TracedTest):
    """A Coral on PCIe: what the chip is told, and what comes of it, is what was recorded."""
    BUSES = {"apex": ("0", "/dev/apex_0"), "vfio": ("1", "/sys/bus/pci/devices/0000:01:00.0")}

    def setUp(self):
        if not APEX_STUB:
            skip("the stand-in for a Coral on PCIe is not built: reference data, x86-64")
        need_shared(PCIE / "manifest.json")
        need_shared(COMPARE_PCIE)
        super().setUp()
        scenarios = json.loads((PCIE / "manifest.json").read_text())["scenarios"]
        # Where TensorFlow Lite has its inputs nobody chooses.
        self.scenarios = [s for s in scenarios if s["input_offset"] == 0 and
                          all(model_path(m).exists() for m in s["models"])]
        self.assertGreater(len(self.scenarios), 10)

    def environment(self, bus, scenario, log="/dev/null"):
        return {"LD_PRELOAD": APEX_STUB, "FAKEAPEX_VFIO": self.BUSES[bus][0],
                "FAKEAPEX_LOG": str(log), "FAKEAPEX_QUIET_MS": "0", "FAKEUSB_MODE": "absent", "FAKEUSB_LOG": "/dev/null",
                "FAKEAPEX_PLAN": ":".join(str(PCIE / f"plans/{m}.plan")
                                          for m in scenario["models"])}


class Pcie(PcieTest):
    WAYS = {"plugin": ("", ":0", "pci", "pci:0"), "c": ("",), "custom": ("",)}

    def run_over(self, bus, way, device, scenario, log="/dev/null"):
        arguments = []
        for option in scenario["options"]:
            arguments += ["--option", option]
        if scenario["models"]:
            arguments += ["--order", ",".join(map(str, scenario["order"])),
                          "--seed", ",".join(map(str, scenario["seeds"]))]
        return run(way, *arguments, *(["--device", device] if device else []),
                   *map(model_path, scenario["models"]), stub=bool(STUB),
                   **self.environment(bus, scenario, log))

    def test_every_scenario(self):
        need_original()
        for scenario in self.scenarios:
            for bus in self.BUSES:
                for way in self.WAYS:
                    if way == "custom" and scenario["options"]:
                        continue  # it has no options
                    # Options are for a device that is named.
                    device = "pci:0" if way == "plugin" and scenario["options"] else ""
                    with self.subTest(scenario["name"], bus=bus, way=way):
                        log = self.directory / f"{scenario['name']}.{bus}.{way}"
                        for _ in range(3):
                            log.unlink(missing_ok=True)
                            done = self.run_over(bus, way, device, scenario, log)
                            # The stand-in waits for two seconds, in which on a busy machine
                            # nothing may happen at all; what never comes, comes in no try.
                            if "is not acknowledged" not in log.read_text():
                                break
                        if self.check_outputs(PCIE, scenario, done):
                            self.compare(COMPARE_PCIE, PCIE / f"{scenario['name']}.trace", log)

    def test_names(self):
        need_original()
        [scenario] = [s for s in self.scenarios if s["name"] == "dense_256"]
        for bus, (_, path) in self.BUSES.items():
            own = path if bus == "apex" else "pci:0000:01:00.0"
            for device in (*self.WAYS["plugin"], own):
                with self.subTest(bus=bus, device=device):
                    done = self.run_over(bus, "plugin", device, scenario)
                    self.assertTrue(self.check_outputs(PCIE, scenario, done))
            for device in (":1", "pci:1", "usb", "usb:0", "pcie"):
                with self.subTest(bus=bus, device=device):
                    done = self.run_over(bus, "plugin", device, scenario)
                    self.assertEqual((done.returncode, done.stdout), (1, b""))
                    self.assertIn(b"no delegate", done.stderr)


class PycoralOnPcie(PcieTest):
    """The same through Python, whose packages are libraries of their own."""
    SCRIPT = """
import json, sys
import packages
from pycoral.adapters import common
from pycoral.utils import edgetpu
print(json.dumps(edgetpu.list_edge_tpus()), flush=True)
path, device = sys.argv[1:]
interpreter = edgetpu.make_interpreter(path, device=device or None)
interpreter.allocate_tensors()
[(_, picture)] = packages.fill(interpreter.get_input_details(), 1)
for _ in range(3):
    edgetpu.run_inference(interpreter, picture)
    sys.stdout.buffer.write(common.output_tensor(interpreter, 0).tobytes())
"""

    def test_devices(self):
        [scenario] = [s for s in self.scenarios if s["name"] == "mobilenet_v1_0.25_128"]
        path_of_packages = f"{os.environ['PYTHONPATH']}:{SOURCE / 'tests/python'}"
        for bus, (_, path) in self.BUSES.items():
            for device in ("", ":0", "pci", "pci:0"):
                log = self.directory / f"{bus}{device}"
                with self.subTest(bus=bus, device=device):
                    done = subprocess.run(
                        [sys.executable, "-B", "-c", self.SCRIPT,
                         str(model_path(*scenario["models"])), device],
                        capture_output=True, check=False, timeout=300,
                        env={**PLAIN, "LD_LIBRARY_PATH": STUB, "ATOLL_ACTIVITY": "off",
                             "PYTHONPATH": path_of_packages,
                             **self.environment(bus, scenario, log)})
                    listed, _, done.stdout = done.stdout.partition(b"\n")
                    self.assertEqual(json.loads(listed), [{"type": "pci", "path": path}])
                    self.assertTrue(self.check_outputs(PCIE, scenario, done))
                    self.compare(COMPARE_PCIE, PCIE / f"{scenario['name']}.trace", log)


class EmulatedTest(unittest.TestCase):
    """Models that nobody compiled, on the emulated device that programs are given on demand."""
    RUNTIME = STAND_IN

    def test_golden_models(self):
        if self.RUNTIME == ORIGINAL_LIBRARIES:
            need_original()
        compared = 0
        for name, model, seeds in golden_models():
            if name not in ("mobilenet_v1_0.25_128_quant", "kws_ref_model", "person_detect",
                            "mlperf_tiny_resnet8_int8"):
                continue
            result = run_model(model, 1, "--delegate", LIBRARY, libraries=self.RUNTIME,
                               ATOLL_EDGETPU_EMULATE="1", ATOLL_DEVICE="")
            with self.subTest(model=name):
                self.assertEqual(result.code, 0, result.stderr)
                self.assertTrue(equal_to_golden(result.stdout, seeds["1"]["outputs"]), name)
                compared += 1
        self.assertGreater(compared, 0)


class Emulated(EmulatedTest):
    RUNTIME = ORIGINAL_LIBRARIES


class EmulatedUnderTheStandIn(EmulatedTest):
    pass


class WithoutACoral(unittest.TestCase):
    """Compiled models run as what they were made from, where the environment says where that is."""
    NAMES = ("mobilenet_v1_0.25_128_quant", "movenet_single_pose_lightning_ptq",
             "libredgetpu_dense_256")

    def check(self, **environment):
        need_original()
        compared = 0
        for name, _, seeds in golden_models():
            if name not in self.NAMES or not model_path(name).exists():
                continue
            result = run_model(model_path(name), 1, "--delegate", LIBRARY, "device=usb",
                               libraries=ORIGINAL_LIBRARIES, ATOLL_DEVICE="",
                               ATOLL_MODEL_PATH=str(SHARED / "models"), **environment)
            with self.subTest(model=name):
                self.assertEqual(result.code, 0, result.stderr)
                self.assertTrue(equal_to_golden(result.stdout, seeds["1"]["outputs"]), name)
                compared += 1
        self.assertGreater(compared, 0)

    def test_on_the_cpu(self):
        self.check(ATOLL_EDGETPU_EMULATE="")

    def test_on_the_emulator(self):
        self.check(ATOLL_EDGETPU_EMULATE="1")


class CompiledByAtoll(unittest.TestCase):
    """What `atoll compile` makes runs on a device like that which it is for; the partition's
    operators are where other runtimes do not look."""

    def test_models(self):
        need_original()
        compared = 0
        for name, model, seeds in golden_models():
            if name not in ("mobilenet_v1_0.25_128_quant", "keras_lstm_mnist_ptq",
                            "mlperf_tiny_ad01_int8"):
                continue
            with self.subTest(model=name), tempfile.TemporaryDirectory() as directory:
                compiled = pathlib.Path(directory, "compiled.tflite")
                subprocess.run([os.environ["ATOLL_COMMAND"], "compile", str(model), "--device",
                                "emu", "--output", str(compiled)], check=True, env=PLAIN,
                               stdout=subprocess.DEVNULL)
                for library, environment in ((LIBRARY, {"ATOLL_EDGETPU_EMULATE": "1"}),
                                             (DELEGATE, {"ATOLL_DEVICE": "emu"})):
                    result = run_model(compiled, 1, "--delegate", library,
                                       libraries=ORIGINAL_LIBRARIES, **environment)
                    self.assertEqual(result.code, 0, result.stderr)
                    self.assertTrue(equal_to_golden(result.stdout, seeds["1"]["outputs"]), name)
                    compared += 1
                result = run_model(compiled, 1, "--delegate", LIBRARY, "device=cpu",
                                   libraries=ORIGINAL_LIBRARIES)
                self.assertEqual(result.code, 1)
                self.assertIn("what it was compiled from is not here", result.stderr)
        self.assertGreater(compared, 0)


class Memory(unittest.TestCase):
    """Delegates and interpreters come and go for days."""
    KILOBYTES = 1000

    def check(self, model, *arguments, **environment):
        need_original()
        need_shared(model)
        # Ten thousand times four threads that come and go: a busy machine takes minutes for it.
        done = run("plugin", *arguments, "--whole", "--order", "0", model, timeout=800,
                   **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        after_a_tenth, after_all = map(int, done.stdout.split())
        self.assertLess(after_all - after_a_tenth, self.KILOBYTES)

    def test_interpreters_and_delegates(self):
        self.check(SMALL, "--times", 10_000, "--keep-open", ATOLL_EDGETPU_EMULATE="1")

    def test_devices(self):
        self.check(FASHION, "--times", 300, ATOLL_EDGETPU_EMULATE="1")

    def test_without_a_device(self):
        self.check(FASHION, "--times", 1000, "--device", "cpu")


class Exports(unittest.TestCase):
    """What Google's library is to linkers and loaders."""
    FUNCTIONS = {
        "edgetpu_create_delegate", "edgetpu_free_delegate", "edgetpu_free_devices",
        "edgetpu_list_devices", "edgetpu_verbosity", "edgetpu_version",
        "tflite_plugin_create_delegate", "tflite_plugin_destroy_delegate",
        "_ZN7edgetpu14EdgeTpuManager12GetSingletonEv", "_ZN7edgetpu16RegisterCustomOpEv",
        "_ZN7edgetpulsERSoNS_10DeviceTypeE", "_ZN7edgetpu14EdgeTpuContextD0Ev",
        "_ZN7edgetpu14EdgeTpuContextD1Ev", "_ZN7edgetpu14EdgeTpuContextD2Ev"}

    def readelf(self, *options):
        return subprocess.run(["readelf", "-W", *options, str(LIBRARY)], check=True, text=True,
                              capture_output=True).stdout

    def test_functions_and_their_version(self):
        exported = dict(re.findall(r"(?:FUNC|OBJECT|NOTYPE) +(?:GLOBAL|WEAK) +\w+ +(?:\d+|ABS) +"
                                   r"([^@\s]+)(@@?\S+)?$", self.readelf("--dyn-syms"), re.M))
        self.assertEqual(exported.pop("VER_1.0"), "")
        self.assertEqual(exported, dict.fromkeys(self.FUNCTIONS, "@@VER_1.0"))

    def test_it_stays_when_it_was_unloaded(self):
        """Runtimes load and unload it with each delegate, which would leave something behind."""
        self.assertIn("NODELETE", self.readelf("--dynamic"))

    def test_names(self):
        self.assertIn("soname: [libedgetpu.so.1]", self.readelf("--dynamic"))
        for name in ("libedgetpu.so.1", "libedgetpu.so.1.0"):
            self.assertEqual((LIBRARY.parent / name).resolve().name, "libedgetpu.so.1.0")


if __name__ == "__main__":
    unittest.main()
