# SPDX-License-Identifier: Apache-2.0
"""`atoll doctor` tells what is wrong with devices and whether everything computes right."""
import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

from atoll_command import COMMAND, EMULATOR, SOURCE, CommandTest, absent, run


class Doctor(CommandTest):
    def computer(self, *devices):
        """A folder with the /sys and /dev of a computer with (path, ids, speed, has a node)."""
        root = self.directory / "computer"
        for address, (path, ids, speed, has_node) in enumerate(devices, 1):
            folder = root / "sys/bus/usb/devices" / path
            folder.mkdir(parents=True)
            vendor, product = ids.split(":")
            for name, value in [("idVendor", vendor), ("idProduct", product), ("busnum", 1),
                                ("devnum", address), ("speed", speed), ("version", " 3.20"),
                                ("bmAttributes", "e0"), ("bMaxPower", "100mA")]:
                (folder / name).write_text(f"{value}\n")
            node = root / f"dev/bus/usb/001/{address:03d}"
            if has_node:
                node.parent.mkdir(parents=True, exist_ok=True)
                node.touch()
        return root

    def diagnose(self, code, *arguments):
        """Its report, which is there whatever it says, and the sentence on stderr."""
        result = run("doctor", *arguments, "--json")
        self.assertEqual(result.code, code, result.stderr)
        self.assertRegex(result.stderr, r"\Aatoll: [^\n]+\.\n\Z")
        report = json.loads(result.stdout)
        self.assertFalse(report["healthy"])
        return report, result.stderr

    def test_this_computer_passes_the_self_test(self):
        report = self.json("doctor", "--device", "emu")
        self.assertTrue(report["healthy"])
        self.assertIsNone(report["open_failure"])
        tests = report["self_test"]
        self.assertTrue(all(test["passed"] and test["failure"] == "" for test in tests))
        self.assertLess(sum(test["ms"] for test in tests), 10_000 * (20 if EMULATOR else 1))
        devices = {test["device"] for test in tests}
        self.assertIn("cpu", devices)
        self.assertIn("emu, baseline kernels", devices)
        names = {test["name"].split()[0] for test in tests if test["device"].startswith("emu")}
        self.assertLessEqual({"CONV_2D", "LSTM", "SOFTMAX", "COPY"}, names)
        text = self.succeed("doctor", "--device", "emu:32x32").stdout
        self.assertIn("emu:32x32, baseline kernels: 43 of 43 known answers", text)

    def test_the_cpu_alone(self):
        tests = self.json("doctor", "--device", "cpu")["self_test"]
        self.assertEqual({test["device"] for test in tests}, {"cpu"})

    def test_a_device_that_is_fine(self):
        root = self.computer(("usb1", "1d6b:0003", 5000, True), ("1-2", "1209:0001", 5000, True))
        report = self.json("doctor", "--root", root)
        self.assertTrue(report["healthy"])
        self.assertIsNone(report["self_test"])
        finding, = report["findings"]
        self.assertEqual((finding["level"], finding["code"], finding["device"]),
                         ("fine", "usable", "usb:1-2"))

    def test_a_device_without_its_node(self):
        root = self.computer(("usb1", "1d6b:0003", 5000, False), ("1-2", "1209:0001", 5000, False))
        report, sentence = self.diagnose(3, "--root", root)
        self.assertEqual([finding["code"] for finding in report["findings"]], ["no_nodes"])
        self.assertIn("nodes in /dev/bus/usb are not here", sentence)

    def test_what_is_slow_is_no_failure(self):
        root = self.computer(("usb1", "1d6b:0003", 5000, True), ("1-2", "18d1:9302", 480, True))
        text = self.succeed("doctor", "--root", root).stdout
        self.assertRegex(text, r"(?m)^warning  usb:1-2: it is linked at 480 Mbit/s")
        self.assertRegex(text, r"(?m)^         use a port of USB 3 and a cable for it")

    def card(self, driver):
        """A folder with a Coral on PCIe that is bound to `driver`, or None."""
        root = self.directory / "computer"
        folder = root / "sys/bus/pci/devices/0000:01:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x1ac1\n")
        (folder / "device").write_text("0x089a\n")
        (folder / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
        if driver is not None:
            (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
            (folder / "driver").symlink_to(f"../../drivers/{driver}")
        return root, folder

    def test_fixes_are_offered_and_nothing_is_done_without_consent(self):
        root, folder = self.card("other")
        report, sentence = self.diagnose(3, "--root", root, "--fix")
        self.assertIn("bound to the driver other", sentence)
        fix, = report["fixes"]
        self.assertEqual((fix["device"], fix["state"]), ("pci:0000:01:00.0", "offered"))
        self.assertEqual(fix["commands"], [
            "echo vfio-pci > /sys/bus/pci/devices/0000:01:00.0/driver_override",
            "echo 0000:01:00.0 > /sys/bus/pci/devices/0000:01:00.0/driver/unbind",
            "echo 0000:01:00.0 > /sys/bus/pci/drivers_probe"])
        self.assertFalse((folder / "driver_override").exists())
        self.assertFalse((root / "sys/bus/pci/drivers_probe").exists())
        self.assertNotIn("fixes", self.diagnose(3, "--root", root)[0])
        self.fail_with(2, ["doctor", "--yes"], "--yes answers what --fix asks")

    def test_a_card_is_bound(self):
        root, folder = self.card("other")
        report, _ = self.diagnose(3, "--root", root, "--fix", "--yes")
        self.assertEqual(report["fixes"][0]["state"], "done")
        self.assertEqual((folder / "driver_override").read_text(), "vfio-pci\n")
        self.assertEqual((folder / "driver/unbind").read_text(), "0000:01:00.0\n")
        self.assertEqual((root / "sys/bus/pci/drivers_probe").read_text(), "0000:01:00.0\n")

    def test_a_card_without_a_driver_is_bound(self):
        root, _ = self.card(None)
        report, _ = self.diagnose(3, "--root", root, "--fix", "--yes")
        self.assertEqual(len(report["fixes"][0]["commands"]), 2)

    def with_sys(self, folder, path, *command):
        """Runs a command where the folder is /sys, and programs are found in `path`."""
        enter = ["unshare", "--user", "--map-root-user", "--mount"]
        probe = subprocess.run([*enter, "true"], capture_output=True, text=True, check=False)
        if probe.returncode != 0:
            absent(f"namespaces of users: {probe.stderr.strip()}")
        return subprocess.run(
            [*enter, "sh", "-c", 'mount --bind "$1" /sys && PATH=$2 && shift 2 && exec "$@"', "sh",
             folder, path, *command], capture_output=True, text=True, timeout=120, check=False)

    def on_this_computer(self, root, *programs):
        """The report of --fix where the folder's /sys is this computer's, and which programs it ran:
        each of those given writes that down, and nothing else can be found."""
        tools = self.directory / "tools"
        tools.mkdir()
        log = self.directory / "log"
        log.write_text("")
        for program in programs:
            (tools / program).write_text(f"#!/bin/sh\necho {program} $* >> {log}\n")
            (tools / program).chmod(0o755)
        done = self.with_sys(root / "sys", tools, *COMMAND, "doctor", "--fix", "--yes", "--json")
        self.assertEqual(done.returncode, 3, done.stderr)
        return json.loads(done.stdout)["fixes"], log.read_text().splitlines()

    @unittest.skipIf(EMULATOR, "namespaces are this computer's own")
    def test_a_card_stays_bound_where_driverctl_is(self):
        root, folder = self.card("other")
        fixes, ran = self.on_this_computer(root, "driverctl", "modprobe")
        self.assertEqual([(fix["device"], fix["state"]) for fix in fixes],
                         [("pci:0000:01:00.0", "done")])
        self.assertEqual(ran, ["driverctl set-override 0000:01:00.0 vfio-pci"])
        self.assertFalse((folder / "driver_override").exists())
        shutil.rmtree(self.directory / "tools")
        fixes, ran = self.on_this_computer(root, "modprobe")
        self.assertEqual(fixes[0]["state"], "done")
        self.assertEqual(ran, ["modprobe vfio-pci"])
        self.assertEqual((folder / "driver_override").read_text(), "vfio-pci\n")
        self.assertEqual((folder / "driver/unbind").read_text(), "0000:01:00.0\n")

    @unittest.skipIf(EMULATOR, "namespaces are this computer's own")
    def test_the_rule_of_udev_knows_our_groups(self):
        """The program in the rule says which IOMMU groups are whose: those with an Atoll-1 or a Coral
        in them."""
        rules = (SOURCE / "driver/vfio/udev/61-atoll-pcie.rules").read_text()
        program, = re.findall(r'(?m)^SUBSYSTEM=="vfio", KERNEL=="\[0-9\]\*", PROGRAM="([^"]+)"', rules)
        groups = self.directory / "sys/kernel/iommu_groups"
        for group, ids in [(1, ["8086:1234"]), (2, ["8086:1234", "1209:A701"]), (3, ["1AC1:089A"]),
                           (4, ["1AC1:089B"]), (5, ["11AC1:089A"])]:
            for number, one in enumerate(ids):
                folder = groups / str(group) / "devices" / f"0000:0{group}:00.{number}"
                folder.mkdir(parents=True)
                (folder / "uevent").write_text(f"DRIVER=vfio-pci\nPCI_ID={one}\n")
        ours = [group for group in range(1, 7) if self.with_sys(
            self.directory / "sys", os.environ["PATH"],
            *shlex.split(program.replace("%k", str(group)))).returncode == 0]
        self.assertEqual(ours, [2, 3])

    def test_what_cannot_be_fixed(self):
        root, folder = self.card("other")
        (folder / "iommu_group").unlink()
        report, _ = self.diagnose(3, "--root", root, "--fix", "--yes")
        self.assertEqual(report["fixes"], [])
        (folder / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
        (root / "sys/bus/pci/drivers_probe").mkdir()  # cannot be written
        fix, = self.diagnose(3, "--root", root, "--fix", "--yes")[0]["fixes"]
        self.assertEqual(fix["state"], "failed")
        self.assertIn("drivers_probe'", fix["failure"])

    def test_cameras(self):
        """They are looked at beside devices, and none is an error."""
        root = self.computer(("usb1", "1d6b:0003", 5000, True), ("1-2", "1209:0001", 5000, True))
        report = self.json("doctor", "--root", root)
        self.assertEqual([camera["code"] for camera in report["cameras"]], ["no_camera"])
        for number, name, index, has_node in [(10, "Garden\x1b[2J", 0, False), (2, "Door", 0, True),
                                              (3, "Door", 1, True)]:
            folder = root / f"sys/class/video4linux/video{number}"
            folder.mkdir(parents=True)
            (folder / "name").write_text(f"{name}\n")
            (folder / "index").write_text(f"{index}\n")
            if has_node:
                (root / f"dev/video{number}").touch()
        report = self.json("doctor", "--root", root)
        self.assertTrue(report["healthy"])
        self.assertEqual([(camera["level"], camera["code"], camera["device"])
                          for camera in report["cameras"]],
                         [("fine", "camera", "/dev/video2"),
                          ("warning", "camera_no_node", "/dev/video10")])
        text = self.succeed("doctor", "--root", root).stdout
        self.assertRegex(text, r"(?m)^fine     /dev/video2: a camera, Door$")
        self.assertRegex(text, r"(?m)^warning  /dev/video10: a camera, Garden\?\[2J, which the")
        self.assertRegex(text, r"(?m)^         give the container --device /dev/video10$")

    def test_a_device_that_is_not_there(self):
        report, sentence = self.diagnose(3, "--device", "usb:17")
        self.assertIn("use --device emu", sentence)
        self.assertIn("no device on USB for 'usb:17'", report["open_failure"])
        self.assertIsNone(report["self_test"])
        self.fail_with(2, ["doctor", "--device", "gpu"], "'gpu' is no device")
        self.fail_with(2, ["doctor", "--root", "/no/such/folder"], "/no/such/folder")


if __name__ == "__main__":
    unittest.main()
