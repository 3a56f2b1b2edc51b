# SPDX-License-Identifier: Apache-2.0
"""`atoll top` sees what other processes do with their devices, and only while they do it."""
import json
import os
import signal
import subprocess
import time
import unittest

from atoll_command import COMMAND, FASHION_MODEL, CommandTest


class Top(CommandTest):
    def setUp(self):
        super().setUp()
        self.activity = self.directory / "activity"
        os.environ["ATOLL_ACTIVITY"] = str(self.activity)
        self.addCleanup(os.environ.pop, "ATOLL_ACTIVITY")

    def start(self, *arguments, **environment):
        process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def camera(self, **environment):
        """A device in use until it is told to stop."""
        return self.start("camera", FASHION_MODEL, "--device", "emu", "--source", "test", "--fps",
                          "200", **environment)

    def activities(self):
        return self.json("top", "--once")["activities"]

    def wait_for(self, condition):
        """The first list that meets the condition."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            activities = self.activities()
            if condition(activities):
                return activities
        self.fail(f"nothing came of {activities}")

    def test_a_running_device(self):
        self.assertEqual(self.activities(), [])
        self.assertIn("no device is in use", self.succeed("top", "--once").stdout)
        camera = self.camera()
        activity, = self.wait_for(
            lambda list: list and list[0]["recent"]["requests"] > 3 and list[0]["open_seconds"] > 1)
        self.assertEqual(activity["pid"], camera.pid)
        self.assertEqual(activity["device"], "emu")
        self.assertIn("camera", activity["command"])
        self.assertIn(str(FASHION_MODEL), activity["command"])
        self.assertTrue(1 <= activity["recent_seconds"] <= 1.125)
        recent, total = activity["recent"], activity["total"]
        self.assertAlmostEqual(activity["requests_per_second"],
                               recent["requests"] / activity["recent_seconds"])
        self.assertTrue(0 < activity["duty_cycle"] <= 1)
        self.assertTrue(0 < activity["modelled_array_utilisation"] <= 1)
        self.assertGreater(activity["modelled_duty_cycle"], 0)
        step = activity["step_ms"]
        self.assertTrue(0 < step["min"] <= step["mean"] <= step["max"])
        self.assertGreaterEqual(recent["bytes_to_device"], recent["requests"] * 784)
        self.assertGreaterEqual(total["requests"], recent["requests"])
        self.assertEqual(total["failures"], 0)
        self.assertTrue(0 < activity["memory_used_bytes"] < activity["memory_bytes"])
        text = self.succeed("top", "--once").stdout
        self.assertRegex(text, rf"(?m)^ *{camera.pid} emu +\d")
        camera.send_signal(signal.SIGINT)
        camera.wait(60)
        self.assertEqual(list(self.activity.iterdir()), [], "it cleans up after itself")

    def test_stages_have_a_device_each(self):
        camera = self.start("camera", FASHION_MODEL, "--device", "emu,emu", "--stages", "2",
                            "--source", "test", "--fps", "200")
        activities = self.wait_for(
            lambda list: len(list) == 2 and all(one["total"]["requests"] > 10 for one in list))
        for activity in activities:
            self.assertEqual(activity["pid"], camera.pid)
            self.assertEqual(activity["total"]["failures"], 0)
            self.assertGreater(activity["modelled_duty_cycle"], 0)
            self.assertGreater(activity["memory_used_bytes"], 0)

    def test_two_devices_and_a_killed_one(self):
        cameras = [self.camera(), self.camera()]
        activities = self.wait_for(lambda list: len(list) == 2)
        self.assertEqual(sorted(activity["pid"] for activity in activities),
                         sorted(camera.pid for camera in cameras))
        cameras[0].kill()
        cameras[0].wait()
        self.assertEqual([activity["pid"] for activity in self.activities()], [cameras[1].pid])
        left = list(self.activity.glob(f"{cameras[0].pid}-*"))
        self.assertEqual(len(left), 1)
        os.utime(left[0], (1, 1))
        self.activities()
        self.assertFalse(left[0].exists(), "the remains of a dead process are removed")

    def test_refreshes_until_stopped(self):
        process = subprocess.Popen([*COMMAND, "top", "--json", "--interval", "0.1"],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        for _ in range(3):
            self.assertEqual(json.loads(process.stdout.readline())["command"], "top")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 0)

    def test_off(self):
        camera = self.camera(ATOLL_ACTIVITY="off")
        other = self.camera()
        self.wait_for(lambda list: [activity["pid"] for activity in list] == [other.pid])
        self.assertIsNone(camera.poll())
        os.environ["ATOLL_ACTIVITY"] = "off"
        self.fail_with(1, ("top", "--once"), "ATOLL_ACTIVITY")

    def test_nowhere_to_publish(self):
        """Inferences run all the same."""
        os.environ["ATOLL_ACTIVITY"] = "/proc/none/none"
        self.assertEqual(self.activities(), [])
        self.succeed("run", FASHION_MODEL, "--device", "emu")


if __name__ == "__main__":
    unittest.main()
