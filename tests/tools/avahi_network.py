# SPDX-License-Identifier: Apache-2.0
"""A network in which nobody else announces anything: a namespace whose only interface is the
loopback, with a bus and an avahi-daemon of its own. Its host is atoll-test.local.
"""
import os
import pathlib
import shutil
import subprocess
import sys

BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>unix:path={folder}/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"""
AVAHI = """[server]
host-name=atoll-test
use-ipv4=yes
use-ipv6=no
allow-interfaces=lo
[publish]
publish-workstation=no
"""
SCRIPT = """set -e
ip link set lo up multicast on
mount -t tmpfs none /run
mount -t tmpfs none /etc/avahi/services
mkdir /run/avahi-daemon
cd {folder}
[ ! -e hosts ] || mount --bind hosts /etc/hosts
dbus-daemon --config-file=bus.conf --nofork --nopidfile 2>bus.log &
until [ -e bus ]; do sleep 0.05; done
export DBUS_SYSTEM_BUS_ADDRESS=unix:path={folder}/bus
avahi-daemon -f avahi.conf --no-drop-root --no-chroot --no-rlimits --no-proc-title >avahi.log 2>&1 &
until grep -q "startup complete" avahi.log; do sleep 0.05; done
"$@" < /dev/null
"""
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def need_a_network():
    """Ends the process, as skipped, where there can be none."""
    tools = ("unshare", "ip", "dbus-daemon", "avahi-daemon")
    absent = [tool for tool in tools if not shutil.which(tool, path=PATH)]
    what = absent[0] if absent else ""
    if not what and subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"],
                                   capture_output=True, check=False).returncode != 0:
        what = "the right to make namespaces"
    if what:
        print(f"ATOLL-SKIPPED: {what} is absent")
        sys.exit(0)


def in_a_network(folder, code, timeout, hosts=""):
    """The process of a program of Python that has ended there, and what the daemons said. It may
    write to /etc/avahi/services. `hosts`: in the place of /etc/hosts, unless it is ""."""
    folder = pathlib.Path(folder)
    (folder / "bus.conf").write_text(BUS.format(folder=folder))
    (folder / "avahi.conf").write_text(AVAHI)
    if hosts:
        (folder / "hosts").write_text(hosts)
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c",
         SCRIPT.format(folder=folder), "bash", sys.executable, "-c", code],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "PATH": PATH})
    return done, "".join(path.read_text() for path in folder.glob("*.log"))
