# SPDX-License-Identifier: Apache-2.0
"""`atoll run` on a Coral: a stand-in for libusb-1.0 with one on its bus (tools/coral-stub of the
reference data) records what reaches the bus. It must be what the original driver sends, and no
fault of the stand-in may end in anything but the right bytes or a clear error.

Environment beyond that of atoll_command.py: ATOLL_CORAL_STUB, the folder of the built stand-in.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import atoll_command
from atoll_command import COMMAND, SHARED, absent, need
from coral_stand_in import splitmix64

WIRE = SHARED / "golden/coral-wire"
TOOLS = SHARED / "tools/coral-stub"
MODELS = SHARED / "models/edgetpu"
STUB = pathlib.Path(os.environ.get("ATOLL_CORAL_STUB", "/nowhere"))
# The published firmware has this digest. Any image of that size does for the stand-in.
FIRMWARE_BYTES = 10783
FIRMWARE_SHA256 = "3b07311b174b81fd14fd2c887f40d646c0ebf2f140cc5ee5cf8befa0f3e3dc7f"
DEVICE_LOST, NO_DEVICE, BAD_MODEL = 5, 3, 4
# What a request can take: each attempt some seconds of patience, and the reset after it.
TIMEOUT_SECONDS = 60

need(WIRE / "manifest.json")
need(TOOLS / "compare_trace.py")
need(STUB)
MANIFEST = json.loads((WIRE / "manifest.json").read_text())
SCENARIOS = {s["name"]: s for s in MANIFEST["scenarios"]}


def model_path(name):
    return MODELS / f"{name}_edgetpu.tflite"


class CoralTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.firmware = self.directory / "firmware.bin"
        self.firmware.write_bytes(splitmix64(3, FIRMWARE_BYTES))
        # Any model without an operator for a Coral opens the device and runs on the CPU.
        self.plain_model = atoll_command.FASHION_MODEL

    def scenario(self, name):
        scenario = SCENARIOS[name]
        for model in scenario["models"]:
            need(model_path(model))
        return scenario

    def device_arguments(self, scenario, firmware):
        """Options of the device, for whoever opens it."""
        arguments = []
        for option in scenario["options"]:
            key, value = option.split("=")
            if key == "Performance":  # what else there is concerns how the original queues reads
                arguments += ["--performance", value.lower()]
        if firmware:
            arguments += ["--firmware", str(self.firmware)]
        return arguments

    def device_environment(self, scenario, log):
        plans = [str(WIRE / MANIFEST["models"][m]["plan"]) for m in scenario["models"]]
        return {**os.environ, "LD_LIBRARY_PATH": str(STUB), "FAKEUSB_LOG": str(log),
                "FAKEUSB_MODE": scenario["mode"], "FAKEUSB_SPEED": scenario["speed"],
                "FAKEUSB_PLAN": ":".join(plans), "ATOLL_ACTIVITY": "off",
                "XDG_DATA_HOME": str(self.directory), "HOME": str(self.directory),
                "XDG_DATA_DIRS": "/nowhere", "ATOLL_CORAL_FIRMWARE": ""}

    def run_command(self, scenario, device):
        command = [*COMMAND, "run", *map(str, map(model_path, scenario["models"]))]
        if not scenario["models"]:
            command.append(str(self.plain_model))
        command += ["--device", device, "--json", "--seed", ",".join(map(str, scenario["seeds"]))]
        if scenario["order"]:
            command += ["--order", ",".join(map(str, scenario["order"]))]
        return command

    def run_scenario(self, scenario, *arguments, log="/dev/null", firmware=False, **environment):
        """The ended process, and how long it took."""
        command = self.run_command(scenario, "usb") + self.device_arguments(scenario, firmware)
        environment = {**self.device_environment(scenario, log), **environment}
        begin = time.monotonic()
        done = subprocess.run([*command, *arguments], env=environment, capture_output=True,
                              timeout=TIMEOUT_SECONDS, check=False, text=True)
        return done, time.monotonic() - begin


class EveryScenario:
    """What reaches the bus is what was recorded, and so is what comes of it. `run_on` runs it."""

    def check(self, scenario):
        log = self.directory / f"{scenario['name']}.log"
        done = self.run_on(scenario, log)
        golden = (WIRE / f"{scenario['name']}.trace").read_text()
        digest = hashlib.sha256(self.firmware.read_bytes()).hexdigest()
        trace = self.directory / "golden.trace"
        trace.write_text(golden.replace(FIRMWARE_SHA256, digest))
        compared = subprocess.run(
            [sys.executable, "-B", str(TOOLS / "compare_trace.py"), "--mode", "essential",
             str(trace), str(log)], capture_output=True, check=False, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + done.stderr)
        events = [json.loads(line) for line in
                  (WIRE / f"{scenario['name']}.outputs").read_text().splitlines()] \
            if scenario["models"] else []
        if any(e["event"] == "prepare" and e["status"] != 0 for e in events):
            self.assertEqual(done.returncode, BAD_MODEL, done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        invocations = json.loads(done.stdout)["invocations"]
        wanted = [e for e in events if e["event"] == "invoke"]
        if not scenario["models"]:
            return
        self.assertEqual(len(invocations), len(wanted))
        for got, want in zip(invocations, wanted):
            self.assertEqual([o["sha256"] for o in got["device_outputs"]],
                             [o["sha256"] for o in want["outputs"]])

    def test_every_scenario(self):
        absent = 0
        for scenario in MANIFEST["scenarios"]:
            if not all(model_path(m).exists() for m in scenario["models"]):
                absent += 1
                continue
            with self.subTest(scenario["name"]):
                self.check(scenario)
        self.assertLess(absent, len(MANIFEST["scenarios"]))


class Wire(EveryScenario, CoralTest):
    def run_on(self, scenario, log):
        return self.run_scenario(scenario, log=log, firmware=scenario["mode"] == "rom")[0]

    def test_packets_and_slowness_change_nothing(self):
        scenario = SCENARIOS["movenet_lightning"]
        if not model_path(scenario["models"][0]).exists():
            absent(scenario["models"][0], is_reference=True)
        plain, _ = self.run_scenario(scenario)
        for environment in ({"FAKEUSB_PACKETS": "hint"}, {"FAKEUSB_FIFO": "64"},
                            {"FAKEUSB_LATENCY_US": "2000"}):
            done, _ = self.run_scenario(scenario, **environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["invocations"],
                             json.loads(plain.stdout)["invocations"])


class Broker(EveryScenario, CoralTest):
    """The same, and a broker has the Coral: one client makes no other traffic than without."""

    def start_broker(self, scenario, log, firmware=False, **environment):
        socket = self.directory / "broker.sock"
        broker = subprocess.Popen(
            [*COMMAND, "broker", "--device", "usb", "--socket", str(socket),
             *self.device_arguments(scenario, firmware)],
            env={**self.device_environment(scenario, log), **environment}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

        def end():
            broker.kill()
            broker.communicate()
        self.addCleanup(end)
        self.assertIn(str(socket), broker.stdout.readline())
        return broker, f"broker:{socket}"

    def stop(self, broker):
        broker.terminate()
        self.assertEqual(broker.wait(TIMEOUT_SECONDS), 0)

    def run_client(self, scenario, device):
        # Where there is no USB, and nothing of the Coral's.
        environment = {**os.environ, "ATOLL_ACTIVITY": "off", "ATOLL_MODEL_PATH": ""}
        environment.pop("LD_LIBRARY_PATH", None)
        return subprocess.run(self.run_command(scenario, device), env=environment,
                              capture_output=True, timeout=TIMEOUT_SECONDS, check=False, text=True)

    def run_on(self, scenario, log):
        broker, device = self.start_broker(scenario, log, firmware=scenario["mode"] == "rom")
        done = self.run_client(scenario, device)
        self.stop(broker)
        return done

    def test_models_of_several_programs(self):
        """Each gets what it would get alone, and those of one model share its parameters."""
        scenario = self.scenario("mobilenet_v1_0.25_128")
        broker, device = self.start_broker(scenario, "/dev/null")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(self.run_client, scenario, device) for _ in range(6)]
        runs = []
        for client in clients:
            done = client.result()
            self.assertEqual(done.returncode, 0, done.stderr)
            runs += [i["device_outputs"][0]["sha256"]
                     for i in json.loads(done.stdout)["invocations"]]
        self.stop(broker)
        # The stand-in numbers its runs, whoever they are for.
        wanted = {hashlib.sha256(splitmix64(1000 + run, 1001)).hexdigest()
                  for run in range(1, len(runs) + 1)}
        self.assertEqual(set(runs), wanted)
        self.assertEqual(len(set(runs)), len(runs))

    def test_faults_of_the_cable(self):
        scenario = self.scenario("mobilenet_v1_0.25_128")
        for fault in ("out:4:2", "in:81:3:1", "event-drop:3", "hang:4", "unplug:5:300:app",
                      "fatal:1:10"):
            with self.subTest(fault):
                broker, device = self.start_broker(scenario, "/dev/null", FAKEUSB_FAULT=fault)
                done = self.run_client(scenario, device)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.stop(broker)

    def test_one_that_is_gone_for_good(self):
        scenario = self.scenario("mobilenet_v1_0.25_128")
        broker, device = self.start_broker(scenario, "/dev/null", FAKEUSB_FAULT="unplug:5:-1")
        done = self.run_client(scenario, device)
        self.assertEqual(done.returncode, DEVICE_LOST, done.stderr)
        self.assertEqual(done.stdout, "")
        self.stop(broker)


class Faults(CoralTest):
    # mobilenet_v1_0.25_128 three times: two bulk-out transfers per payload, caching first; one
    # output of 1001 bytes as they come; events 1 (of caching) to 4.
    OVERCOME = (
        [f"out:{n}:{status}" for n in (1, 2, 4, 5, 8, 12) for status in (1, 2, 4, 5, 6)]
        + [f"out-short:{n}:3" for n in (1, 4, 7)]
        + [f"in:{ep}:{n}:{status}" for ep in (81, 82) for n in (1, 3) for status in (1, 2, 4, 5, 6)]
        + [f"in:83:1:{status}" for status in (1, 2, 4, 5)]
        + [f"halt:{ep}:{n}" for ep, n in (("01", 1), ("01", 7), ("81", 1), ("82", 2), ("83", 1))]
        + [f"event-short:{n}:{size}" for n in (1, 3) for size in (0, 8, 15)]
        + [f"event-drop:{n}" for n in (1, 3)]
        + [f"event-tag:{n}:{tag}" for n in (1, 3) for tag in (0, 3, 5)]
        + [f"hang:{n}" for n in (1, 4, 10)]
        + [f"unplug:{n}:300{app}" for n in (1, 5, 11) for app in ("", ":app")]
        + [f"control:{n}:{error}" for n in (1, 20, 75) for error in (-9, -7, -1)]
        + ["open:1:-3", "claim:1:-3", "fatal:1:10", "fatal:2:0", "fatal:2:200;hang:9",
           "hang:5;reset:1:-1", "unplug-control:75:300"]
        + [f"top-level:2:{k}" for k in range(4)])
    OVERCOME_IN_ROM = ("", "dfu-status:1:3:10", "dfu-status:5:3:10", "dfu-status:44:3:10",
                       "boot-fail", "open:2:-3", "control:30:-9")
    REFUSED = (
        [f"unplug:{n}:-1" for n in (1, 10)] + [f"unplug-control:{n}:-1" for n in (1, 30)]
        + ["control:1:-1:100000", "open:1:-6", "claim:1:-6", "open:1:-4", "read:1a318:0",
           "read:1a000:0", "read:44018:1", "read:48788:0"])
    REFUSED_IN_ROM = ("dfu-verify:0", "dfu-verify:10782", "unplug-control:20:-1",
                      "control:20:-1:100000")

    def outputs_in_order(self, done):
        """Whether the outputs are those of some runs, the later the later."""
        digests = [hashlib.sha256(splitmix64(1000 + run, 1001)).hexdigest()
                   for run in range(1, 20)]
        runs = [digests.index(i["outputs"][0]["sha256"])
                for i in json.loads(done.stdout)["invocations"]]
        return runs == sorted(set(runs))

    def check_all(self, scenario, faults, check, **options):
        # Most of their time they wait.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = {fault: pool.submit(self.run_scenario, scenario, FAKEUSB_FAULT=fault, **options)
                    for fault in faults}
        for fault, job in jobs.items():
            with self.subTest(fault):
                done, seconds = job.result()
                self.assertLess(seconds, TIMEOUT_SECONDS / 2)
                check(done)

    def overcome(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.outputs_in_order(done))

    def refused(self, done):
        self.assertIn(done.returncode, (DEVICE_LOST, NO_DEVICE), done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr.splitlines()[-1], r"^atoll: .*2-3.*\.$")

    def test_what_can_be_overcome_is(self):
        self.check_all(self.scenario("mobilenet_v1_0.25_128"), self.OVERCOME, self.overcome,
                       firmware=True)

    def test_firmware_gets_there_nevertheless(self):
        self.check_all(self.scenario("rom_to_inference"), self.OVERCOME_IN_ROM, self.overcome,
                       firmware=True)

    def test_what_cannot_be_overcome_is_a_clear_error(self):
        self.check_all(self.scenario("mobilenet_v1_0.25_128"), self.REFUSED, self.refused)

    def test_firmware_that_cannot_get_there_is_a_clear_error(self):
        self.check_all(self.scenario("rom_to_inference"), self.REFUSED_IN_ROM, self.refused,
                       firmware=True)

    def test_without_firmware_the_error_says_where_to_get_it(self):
        done, _ = self.run_scenario(self.scenario("rom_to_inference"))
        self.assertEqual(done.returncode, NO_DEVICE, done.stderr)
        self.assertIn("apex_latest_single_ep.bin of github.com/google-coral/libedgetpu",
                      done.stderr)
        self.assertIn(FIRMWARE_SHA256, done.stderr)
        # After a loss of power, as well.
        done, _ = self.run_scenario(self.scenario("mobilenet_v1_0.25_128"),
                                    FAKEUSB_FAULT="unplug:5:300")
        self.refused(done)
        self.assertIn("--firmware", done.stderr)


class Options(CoralTest):
    def test_seeds_may_stay_with_the_model(self):
        scenario = SCENARIOS["movenet_lightning"]
        if not model_path(scenario["models"][0]).exists():
            absent(scenario["models"][0], is_reference=True)
        logs = {}
        for where in ("device", "model"):
            log = self.directory / where
            done, _ = self.run_scenario(scenario, "--seed-at", where, log=log)
            self.assertEqual(done.returncode, 0, done.stderr)
            logs[where] = [line for line in log.read_text().splitlines() if "payload tag=1" in line]
        digest = hashlib.sha256(
            bytes(b ^ 0x80 for b in splitmix64(1, 192 * 192 * 3))).hexdigest()
        self.assertIn(digest, logs["device"][0])
        self.assertNotIn(digest, logs["model"][0])

    def test_what_runs_elsewhere(self):
        """The device decides, not what is plugged in; and bytes of two models are not compared."""
        name = "libredgetpu_bright_16x16"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(STUB), "FAKEUSB_LOG": "/dev/null",
                       "FAKEUSB_MODE": "app", "ATOLL_ACTIVITY": "off",
                       "ATOLL_MODEL_PATH": str(SHARED / "models")}

        def atoll(*arguments):
            return subprocess.run([*COMMAND, *map(str, arguments)], env=environment,
                                  capture_output=True, check=False, text=True)

        done = atoll("run", model_path(name))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"/{name}.tflite' runs instead", done.stderr)
        self.assertRegex(done.stderr, "a Coral is plugged in; --device usb[^ ]* runs '")
        self.assertEqual(done.stdout, atoll("run", SHARED / f"models/{name}.tflite").stdout)
        done = atoll("verify", model_path(name), "--device", "usb", "--against", "cpu")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("on one side alone", done.stderr)

    def test_a_coral_compiles_nothing(self):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(STUB), "FAKEUSB_LOG": "/dev/null",
                       "FAKEUSB_MODE": "app", "ATOLL_ACTIVITY": "off"}
        for arguments in (("compile", self.plain_model, "--output", self.directory / "out.tflite"),
                          ("disasm", self.plain_model)):
            done = subprocess.run([*COMMAND, *map(str, arguments), "--device", "usb"],
                                  env=environment, capture_output=True, check=False, text=True)
            self.assertEqual(done.returncode, BAD_MODEL, done.stderr)
            self.assertIn("edgetpu_compiler", done.stderr)


if __name__ == "__main__":
    unittest.main()
