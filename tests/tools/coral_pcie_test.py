# SPDX-License-Identifier: Apache-2.0
"""`atoll run` on a Coral on PCIe: a stand-in (tools/coral-stub of the reference data) takes the
place of /dev/apex_0, or of vfio-pci with a Coral on it. What the chip is told must be, in essence,
what the original driver tells it, and no fault of the stand-in may end in anything but the right
bytes or a clear error.

Environment beyond that of atoll_command.py: ATOLL_APEX_STUB, the built stand-in, or why there is
none; ATOLL_CORAL_SESSION, the program tests/driver/coral/coral_pcie_session.cc.
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

GOLDEN = SHARED / "golden/coral-pcie"
TOOLS = SHARED / "tools/coral-stub"
MODELS = SHARED / "models/edgetpu"
STUB = os.environ.get("ATOLL_APEX_STUB", "no stand-in was built")
SESSION = os.environ.get("ATOLL_CORAL_SESSION", "/nowhere")
DEVICE_LOST, NO_DEVICE, BAD_MODEL, FAILED = 5, 3, 4, 1
TIMEOUT_SECONDS = 60
WAYS = ("apex", "vfio")
DEVICES = {"apex": "/dev/apex_0", "vfio": "pci"}

need(GOLDEN / "manifest.json")
need(TOOLS / "compare_apex.py")
if not pathlib.Path(STUB).is_absolute():
    print(f"ATOLL-SKIPPED: {STUB}")
    sys.exit(0)
need(pathlib.Path(STUB))
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
SCENARIOS = {s["name"]: s for s in MANIFEST["scenarios"]}


def model_path(name):
    return MODELS / f"{name}_edgetpu.tflite"


def are_there(scenario):
    return all(model_path(m).exists() for m in scenario["models"])


class CoralPcieTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def device_environment(self, way, scenario, log):
        plans = [str(GOLDEN / f"plans/{m}.plan") for m in scenario["models"]]
        return {**os.environ, "LD_PRELOAD": STUB, "FAKEAPEX_LOG": str(log),
                "FAKEAPEX_PLAN": ":".join(plans), "ATOLL_ACTIVITY": "off",
                "FAKEAPEX_VFIO": "1" if way == "vfio" else "0"}

    def run_over(self, way, scenario, command, log="/dev/null", **environment):
        """The ended process, and how long it took."""
        environment = {**self.device_environment(way, scenario, log), **environment}
        begin = time.monotonic()
        done = subprocess.run([str(word) for word in command], env=environment, text=True,
                              capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        return done, time.monotonic() - begin

    def run_command(self, scenario, device):
        # Any model without an operator for a Coral opens the device and runs on the CPU.
        models = [model_path(m) for m in scenario["models"]] or [atoll_command.FASHION_MODEL]
        command = [*COMMAND, "run", *map(str, models), "--device", device, "--json", "--seed",
                   ",".join(map(str, scenario["seeds"]))]
        if scenario["order"]:
            command += ["--order", ",".join(map(str, scenario["order"]))]
        return command

    def device_arguments(self, scenario):
        options = dict(option.split("=") for option in scenario["options"])
        performance = options.get("Performance")
        return ["--performance", performance.lower()] if performance else []

    def run_scenario(self, way, scenario, log="/dev/null", **environment):
        command = self.run_command(scenario, DEVICES[way]) + self.device_arguments(scenario)
        return self.run_over(way, scenario, command, log, **environment)

    def run_session(self, way, scenario, *options, log="/dev/null", **environment):
        """Digests of the outputs of each run of the program of ours, and the process."""
        command = [SESSION, way, *options, "--seeds", ",".join(map(str, scenario["seeds"])),
                   "--order", ",".join(map(str, scenario["order"])),
                   *map(model_path, scenario["models"])]
        done, _ = self.run_over(way, scenario, command, log, **environment)
        return [line.split() for line in done.stdout.splitlines()], done

    def compare(self, scenario, log, hint=""):
        compared = subprocess.run(
            [sys.executable, "-B", str(TOOLS / "compare_apex.py"), "--mode", "essential",
             str(GOLDEN / f"{scenario['name']}.trace"), str(log)],
            capture_output=True, check=False, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr + hint)

    def wanted_outputs(self, scenario):
        """Of each invocation; None if the model is refused."""
        events = [json.loads(line) for line in
                  (GOLDEN / f"{scenario['name']}.outputs").read_text().splitlines()]
        if any(e["event"] == "prepare" and e["status"] != 0 for e in events):
            return None
        return [[o["sha256"] for o in e["outputs"]] for e in events if e["event"] == "invoke"]


class EveryScenario:
    """What the chip is told is what was recorded, and so is what comes of it. `run_on` runs it."""

    def check(self, way, scenario, **environment):
        log = self.directory / f"{scenario['name']}.{way}.log"
        log.unlink(missing_ok=True)
        done = self.run_on(way, scenario, log, **environment)
        self.compare(scenario, log, done.stderr)
        wanted = self.wanted_outputs(scenario) if scenario["models"] else []
        self.assertEqual(done.returncode, BAD_MODEL if wanted is None else 0, done.stderr)
        if wanted:
            got = [[o["sha256"] for o in i["device_outputs"]]
                   for i in json.loads(done.stdout)["invocations"]]
            self.assertEqual(got, wanted)

    def test_every_scenario(self):
        absent = [s["name"] for s in SCENARIOS.values() if not are_there(s)]
        for scenario in SCENARIOS.values():
            for way in WAYS:
                if are_there(scenario):
                    with self.subTest(scenario["name"], way=way):
                        self.check(way, scenario)
        self.assertLess(len(absent), len(SCENARIOS))


class Recordings(EveryScenario, CoralPcieTest):
    def run_on(self, way, scenario, log, **environment):
        return self.run_scenario(way, scenario, log, **environment)[0]

    def test_a_session_over_vfio_is_played_back(self):
        scenario = SCENARIOS["cocompiled_pair"]
        if not are_there(scenario):
            absent("models of a scenario", is_reference=True)
        recording = self.directory / "recording.pcapng"
        models = [model_path(m) for m in scenario["models"]]
        order = ["--order", ",".join(map(str, scenario["order"])), "--json"]
        played = []
        for device in (("pci", "--record", recording), (f"replay:{recording}",)):
            done, _ = self.run_over("vfio", scenario,
                                    [*COMMAND, "run", *models, "--device", *device, *order])
            self.assertEqual(done.returncode, 0, done.stderr)
            played.append([i["device_outputs"] for i in json.loads(done.stdout)["invocations"]])
        self.assertEqual(*played)

    def test_a_device_that_acts_at_once_or_retires_late(self):
        for name in ("deeplabv3", "cocompiled_pair"):
            scenario = SCENARIOS[name]
            if not are_there(scenario):
                continue
            for way in WAYS:
                for environment in ({"FAKEAPEX_QUIET_MS": "0"}, {"FAKEAPEX_RETIRE": "late"}):
                    with self.subTest(name, way=way, **environment):
                        self.check(way, scenario, **environment)


class Broker(EveryScenario, CoralPcieTest):
    """A broker has the Coral: one client tells the chip no more than without."""

    def run_on(self, way, scenario, log):
        socket = self.directory / f"{way}.sock"
        environment = {**os.environ, "ATOLL_ACTIVITY": "off"}
        with subprocess.Popen(
                [*COMMAND, "broker", "--device", DEVICES[way], "--socket", str(socket),
                 *self.device_arguments(scenario)], stdout=subprocess.PIPE, text=True,
                env=self.device_environment(way, scenario, log)) as broker:
            try:
                self.assertIn(str(socket), broker.stdout.readline())
                done = subprocess.run(self.run_command(scenario, f"broker:{socket}"), text=True,
                                      env=environment, capture_output=True, check=False,
                                      timeout=TIMEOUT_SECONDS)
                broker.terminate()
                self.assertEqual(broker.wait(TIMEOUT_SECONDS), 0)
            finally:
                broker.kill()
        return done


class Sessions(CoralPcieTest):
    """The chip alone: memory that is registered, runs ahead, hosts whose caches nobody sees."""
    NAMES = ("mobilenet_v1_0.25_128_offset_8", "mobilenet_v1_0.25_128_offset_4",
             "mobilenet_v1_0.25_128_seeds", "deeplabv3", "posenet_353_481", "movenet_lightning",
             "split_concat", "testconv1", "cocompiled_pair", "separate_pair", "partly_streamed")

    def check(self, way, scenario, *options, **environment):
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        got, done = self.run_session(way, scenario, *options, log=log, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(got, self.wanted_outputs(scenario))
        self.compare(scenario, log, done.stderr)
        return [json.loads(line) for line in log.read_text().splitlines()]

    def test_every_way_to_run(self):
        absent = 0
        for name in self.NAMES:
            scenario = SCENARIOS[name]
            if not are_there(scenario):
                absent += 1
                continue
            offset = ("--offset", scenario["input_offset"])
            for way in WAYS:
                for options in ((), ("--registered",), ("--ahead", 3),
                                ("--registered", "--ahead", 3), ("--unseen-caches",)):
                    if way == "vfio" and "--unseen-caches" in options:
                        continue
                    with self.subTest(name, way=way, options=options):
                        self.check(way, scenario, *offset, *options)
        self.assertLess(absent, len(self.NAMES))

    def test_registered_inputs_are_read_where_they_are_if_they_can_be(self):
        for name, in_place in (("mobilenet_v1_0.25_128_offset_8", True),
                               ("mobilenet_v1_0.25_128_offset_4", False)):
            scenario = SCENARIOS[name]
            if not are_there(scenario):
                absent("models of a scenario", is_reference=True)
            events = self.check("apex", scenario, "--offset", scenario["input_offset"],
                                "--registered")
            host_of = {}  # by address of the chip
            for event in events:
                if event.get("name") == "map_flags":
                    host_of[int(event["va"], 16)] = event
            inputs = [int(e["va"], 16) for e in events
                      if e["e"] == "dma" and e["kind"] == "input"]
            both_ways = [m for m in host_of.values() if m["flags"] == 0]
            for address in inputs:
                lies_there = any(int(m["va"], 16) <= address < int(m["va"], 16) + m["bytes"]
                                 for m in both_ways)
                self.assertEqual(lies_there, in_place)
                self.assertEqual(address % 4096, scenario["input_offset"] if in_place else 0)

    def test_several_runs_are_in_the_ring_at_once(self):
        scenario = SCENARIOS["mobilenet_v1_0.25_128_seeds"]
        if not are_there(scenario):
            absent("models of a scenario", is_reference=True)
        for way in WAYS:
            events = self.check(way, scenario, "--ahead", 3)
            first_event = next(i for i, e in enumerate(events) if e["e"] == "event")
            bells = [e["value"] for e in events[:first_event]
                     if e["e"] == "w" and e["reg"] == "485a8"]
            # the upload and three inferences, before the chip has finished any of them
            self.assertEqual(bells[-1], "4")


class Faults(CoralPcieTest):
    # mobilenet_v1_0.25_128 three times: run 1 uploads the parameters, 2 to 4 are inferences.
    OVERCOME = (
        [f"hang:{n}" for n in range(1, 5)]
        + [f"fatal:{n}:{bits}" for n in (1, 2, 4) for bits in ("1", "2", "10", "200", "4000")]
        + [f"queue:{n}:{code}" for n in (1, 2, 4) for code in (1, 3)]
        + ["hang:2;hang:4", "fatal:2:200;queue:4:3;hang:6"])
    OVERCOME_ON_APEX = (
        [f"ioctl:{number}:{n}:{error}" for number in (8, 9, 12) for n in (1, 2, 3, 4, 6)
         for error in (12, 14, 22, 25)])
    REFUSED = ([f"gone:{n}" for n in range(1, 5)]
               + ["fatal:2:1;fatal:3:1;fatal:4:1"])  # a program that faults again is at fault
    REFUSED_ON_APEX = (
        [f"open:1:{error}" for error in (1, 2, 5, 6, 13, 16, 110)]
        + [f"ioctl:{number}:{n}:{error}" for number, n in ((1, 1), (1, 5), (7, 1), (11, 1))
           for error in (1, 12, 14, 22, 25)] + ["ioctl:12:1:1"])

    def check_all(self, way, faults, check):
        scenario = SCENARIOS["mobilenet_v1_0.25_128"]
        for model in scenario["models"]:
            need(model_path(model))
        # Most of their time they wait.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = {fault: pool.submit(self.run_scenario, way, scenario, FAKEAPEX_FAULT=fault)
                    for fault in faults}
        for fault, job in jobs.items():
            with self.subTest(fault, way=way):
                done, seconds = job.result()
                self.assertLess(seconds, TIMEOUT_SECONDS / 2)
                check(done)

    def overcome(self, done):
        """The outputs are those of some runs, the later the later."""
        self.assertEqual(done.returncode, 0, done.stderr)
        digests = [hashlib.sha256(splitmix64(1000 + run, 1001)).hexdigest()
                   for run in range(1, 20)]
        runs = [digests.index(i["outputs"][0]["sha256"])
                for i in json.loads(done.stdout)["invocations"]]
        self.assertEqual(len(runs), 3)
        self.assertEqual(runs, sorted(set(runs)))

    def refused(self, done):
        self.assertIn(done.returncode, (DEVICE_LOST, NO_DEVICE, BAD_MODEL, FAILED), done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr.splitlines()[-1], r"^atoll: .*(apex_0|0000:01:00\.0).*\.$")

    def test_what_can_be_overcome_is(self):
        for way in WAYS:
            self.check_all(way, self.OVERCOME, self.overcome)
        self.check_all("apex", self.OVERCOME_ON_APEX, self.overcome)

    def test_what_cannot_be_overcome_is_a_clear_error(self):
        for way in WAYS:
            self.check_all(way, self.REFUSED, self.refused)
        self.check_all("apex", self.REFUSED_ON_APEX, self.refused)


if __name__ == "__main__":
    unittest.main()
