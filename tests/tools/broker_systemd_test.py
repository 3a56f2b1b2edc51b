# SPDX-License-Identifier: Apache-2.0
"""The units of the broker as systemd runs them: a systemd of its own, in namespaces, over a root
that goes with it. The device is the emulator; everything else is as it is installed, the
confinement of the service among it."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from atoll_command import COMMAND, EMULATOR, FASHION_MODEL, SOURCE, CommandTest

# Ends with the process that it becomes, and with that everything in the namespaces.
BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t tmpfs none run
mount -t tmpfs none tmp
mount -t tmpfs none dev
for node in null zero full random urandom; do
  touch dev/$node
  mount --bind /dev/$node dev/$node
done
touch dev/console
mount -t proc none proc
mount -t sysfs none sys
mount -t cgroup2 none sys/fs/cgroup
mkdir -p usr/local/bin usr/local/lib etc/systemd/system usr/local/share/model
cp "$2" usr/local/bin/atoll
shift 2
while [ "$1" != -- ]; do
  cp "$1" usr/local/lib
  shift
done
shift
cp "$1" usr/local/share/model.tflite
cp "$2"/atoll-broker.socket "$2"/atoll-broker.service etc/systemd/system
cp "$2"/atoll.sysusers etc/atoll.sysusers
# What the machine would start beside it is nobody's business here.
rm -rf etc/systemd/system/*.wants
export container=atoll-test
exec chroot . /lib/systemd/systemd --system --unit=basic.target
"""
NOTHING = "ATOLL-SKIPPED: systemd cannot be run in namespaces here"


def library_paths():
    """Of our libraries, which the command finds where it was built."""
    said = subprocess.run(["ldd", COMMAND[0]], capture_output=True, text=True, check=True).stdout
    return re.findall(r"=> (\S+/libatoll\S*)", said)


class Systemd(CommandTest):
    def setUp(self):
        super().setUp()
        self.log = self.directory / "boot.log"
        place = self.directory / "place"
        place.mkdir()
        with self.log.open("w") as log:
            self.machine = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts",
                 "--ipc", "bash", "-c", BOOT, "boot", place, COMMAND[0], *library_paths(), "--",
                 FASHION_MODEL, SOURCE / "tools/systemd"], stdout=log, stderr=log)
        self.addCleanup(self.machine.wait)
        self.addCleanup(self.machine.kill)
        self.init = None
        self.wait_for(lambda: self.machine.poll() is not None or self.is_up(), "it does not boot")
        if self.machine.poll() is not None:
            print(NOTHING, self.log.read_text()[-300:])
            self.skipTest(NOTHING)

    def is_up(self):
        """Whether systemd has started what it was to start; then the root is its."""
        children = pathlib.Path(f"/proc/{self.machine.pid}/task/{self.machine.pid}/children")
        self.init = children.read_text().split()[0] if children.read_text() else None
        if self.init is None:
            return False
        name = pathlib.Path(f"/proc/{self.init}/comm").read_text()
        return name == "systemd\n" and self.inside(
            "systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def inside(self, *arguments, check=True, **environment):
        done = subprocess.run(
            ["nsenter", "-t", self.init, "-m", "-p", "-C", "-r", "-w", "env", "-i",
             "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "ATOLL_PROGRESS=off",
             *(f"{name}={value}" for name, value in environment.items()), *map(str, arguments)],
            capture_output=True, text=True, timeout=120, check=False)
        if check:
            self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def write(self, path, text):
        self.inside("sh", "-c", 'mkdir -p "$(dirname "$1")"; printf %s "$2" >"$1"', "sh", path, text)

    def property(self, name, unit="atoll-broker.service"):
        return self.inside("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def run_model(self, device, order="0"):
        done = self.inside("atoll", "run", "/usr/local/share/model.tflite", "--device", device,
                           "--order", order, "--on-device-loss", "replay", "--json",
                           LD_LIBRARY_PATH="/usr/local/lib")
        return json.loads(done.stdout)

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def test_the_units(self):
        self.inside("ldconfig")
        self.inside("systemd-sysusers", "/etc/atoll.sysusers")
        self.write("/etc/atoll/broker.json", '{"shares": [{"user": 0, "weight": 3}]}')
        self.write("/etc/systemd/system/atoll-broker.service.d/device.conf",
                   "[Service]\nExecStart=\nExecStart=/usr/local/bin/atoll broker --device emu "
                   "--config /etc/atoll/broker.json\nExecReload=/bin/kill -HUP $MAINPID\n")
        self.inside("systemctl", "daemon-reload")
        self.inside("systemctl", "start", "atoll-broker.socket")
        self.assertEqual(self.inside("stat", "-c", "%F %a %G", "/run/atoll/broker.sock").stdout,
                         "socket 660 atoll\n")
        self.assertEqual(self.property("ActiveState"), "inactive")

        # Whoever comes starts it, and gets the device's bytes from a service that may do nothing.
        wanted = self.run_model("emu")["outputs"]
        self.assertEqual(self.run_model("broker")["outputs"], wanted)
        self.assertEqual(self.property("ActiveState"), "active")
        first = self.property("MainPID")
        status = self.inside("cat", f"/proc/{first}/status").stdout
        self.assertRegex(status, r"(?m)^CapEff:\s0+$")
        self.assertRegex(status, r"(?m)^Seccomp:\s2$")
        self.assertRegex(status, r"(?m)^NoNewPrivs:\s1$")

        # Its clients see it, with the share that the file gives them.
        with subprocess.Popen(
                ["nsenter", "-t", self.init, "-m", "-p", "-r", "-w", "env",
                 "LD_LIBRARY_PATH=/usr/local/lib", "/usr/local/bin/atoll", "camera",
                 "/usr/local/share/model.tflite", "--device", "broker", "--source", "test",
                 "--fps", "100", "--quiet", "--json"], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True) as camera:
            try:
                self.check_under_way(camera, first)
            finally:
                camera.kill()

        self.inside("systemctl", "stop", "atoll-broker.service")
        self.assertEqual(self.property("Result"), "success")
        self.assertEqual(self.property("ExecMainStatus"), "0")
        # The socket stays, and starts it again.
        self.assertEqual(self.property("ActiveState", "atoll-broker.socket"), "active")
        self.assertEqual(self.run_model("broker")["outputs"], wanted)
        self.inside("systemctl", "stop", "atoll-broker.socket", "atoll-broker.service")
        self.assertNotEqual(self.inside("systemctl", "is-failed", "atoll-broker.service",
                                        check=False).returncode, 0)

    def clients(self):
        said = self.inside("atoll", "top", "--once", "--json", LD_LIBRARY_PATH="/usr/local/lib",
                           ATOLL_ACTIVITY="/run/atoll/activity")
        return json.loads(said.stdout)

    def check_under_way(self, camera, first):
        def requests_of(weight):
            self.assertIsNone(camera.poll(), "the client ended")
            rows = (self.clients()["broker"] or {"clients": []})["clients"]
            return sum(row["requests"] for row in rows if row["weight"] == weight)

        self.wait_for(lambda: requests_of(3) > 10, "no client of weight 3")
        # What the service publishes is there for root's `atoll top`.
        self.assertEqual([one["device"] for one in self.clients()["activities"]], ["emu"])
        self.write("/etc/atoll/broker.json", '{"shares": [{"user": 0, "weight": 2}]}')
        self.inside("systemctl", "reload", "atoll-broker.service")
        self.wait_for(lambda: requests_of(2) > 10, "the file was not read again")
        self.assertEqual(self.property("MainPID"), first)

        # Killed, and replaced: it comes back each time, and the client goes on.
        self.inside("systemctl", "kill", "-s", "KILL", "atoll-broker.service")
        self.wait_for(lambda: self.property("MainPID") not in (first, "0"), "it does not come back")
        self.wait_for(lambda: requests_of(2) > 10, "the client does not go on")
        second = self.property("MainPID")
        self.inside("systemctl", "restart", "atoll-broker.service")
        self.wait_for(lambda: self.property("MainPID") not in (second, "0"), "no restart")
        self.wait_for(lambda: requests_of(2) > 10, "the client does not go on")
        camera.send_signal(signal.SIGINT)


if __name__ == "__main__":
    if EMULATOR or os.getuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "bash"))) \
            or not os.path.exists("/lib/systemd/systemd"):
        print(f"{NOTHING}: root, util-linux and systemd are needed")
    else:
        unittest.main()
