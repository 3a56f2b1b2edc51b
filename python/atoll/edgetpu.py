# SPDX-License-Identifier: Apache-2.0
"""Edge TPUs by the names that Google's software has for them, as libedgetpu.so.1 of Atoll's reads
them (docs/coral.md).

"" is any device: what ATOLL_DEVICE says, else the first, on PCIe before USB; ":N" the N-th of all,
"usb" and "pci" the first on that bus, "usb:N" and "pci:N" the N-th on it; others are Atoll's names.
ATOLL_EDGETPU_EMULATE=1 says that an emulated device is there, on USB, after all real ones; 2 to 16,
that so many are: emu, emu#1 and so on. Where none is there and ATOLL_MODEL_PATH is set, models that were compiled run on the CPU as what they were made
from.
"""
import os
import re
from typing import Any, Dict, List, Mapping

from atoll import _atoll

# What programs call the library that drives Edge TPUs, on Linux, macOS and Windows.
LIBRARY = re.compile(r"(.*[/\\])?(libedgetpu\.so(\.\d+)*|libedgetpu(\.\d+)*\.dylib|edgetpu\.dll)")

_PERFORMANCES = {"Low": "low", "Medium": "medium", "High": "high", "Max": "max"}


def _found() -> List[Dict[str, str]]:
    """type, path and Atoll's name of each device that can be opened."""
    found = []
    for device in _atoll.devices():
        name = device["name"]
        bus, _, place = name.partition(":")
        if not device["available"]:
            continue
        if name.startswith("/dev/apex_"):
            found.append({"type": "pci", "path": name, "name": name})
        elif bus in ("usb", "pci") and place:
            found.append({"type": bus, "path": f"/sys/bus/{bus}/devices/{place}", "name": name})
    for number in range(_emulated()):
        name = f"emu#{number}" if number > 0 else "emu"
        found.append({"type": "usb", "path": name, "name": name})
    return found


def _emulated() -> int:
    """How many there shall be; what is no number is one."""
    wanted = os.environ.get("ATOLL_EDGETPU_EMULATE", "")
    return min(int(wanted), 16) if wanted.isdecimal() else int(wanted != "")


def list_edge_tpus() -> List[Dict[str, str]]:
    """{'type': 'usb' or 'pci', 'path': ...} of each device that is there."""
    return [{"type": device["type"], "path": device["path"]} for device in _found()]


def open_edge_tpu(options: Mapping[str, str]) -> _atoll.Delegate:
    """The device that the options of Google's library name. ValueError if it is not there, or if an
    option that counts has a value that is none; other options are ignored, as they are there."""
    device = options.get("device", "") or os.environ.get("ATOLL_DEVICE", "")
    name = re.fullmatch(r"(usb|pci)?(?::(\d+))?", device)
    bus, number = name.groups() if name else (None, None)
    performance = None
    if name is None or number is not None:
        performance = _one_of(options, "Performance", _PERFORMANCES)
        _one_of(options, "Usb.AlwaysDfu", {"True": True, "False": False})
        _one_of(options, "Usb.MaxBulkInQueueLength", {str(n): n for n in range(257)})
    candidates = [device] if name is None else _candidates(bus, number)
    for candidate in candidates:
        try:
            is_numbered = candidate.startswith("emu#") and any(
                device["name"] == candidate for device in _found())
            opened = "emu" if is_numbered else candidate
            return _atoll.Delegate(opened, performance=(
                performance if candidate.startswith(("usb", "pci", "/dev/apex_")) else None))
        except _atoll.Error as error:
            if candidate == candidates[-1]:
                raise ValueError(str(error)) from error
    which = f" '{device}'" if device else ""
    raise ValueError(
        f"no Edge TPU{which} is there. ATOLL_EDGETPU_EMULATE=1 gives programs an emulated one; "
        "with ATOLL_MODEL_PATH, models that were compiled run as those in its folders that they "
        "were made from")


def _candidates(bus: Any, number: Any) -> List[str]:
    """Atoll's names of what may be meant, the best first."""
    found = _found()
    if not found and int(number or 0) == 0 and os.environ.get("ATOLL_MODEL_PATH"):
        return ["cpu"]
    fitting = [device for device in found if bus in (None, device["type"])]
    if number is not None:
        return [device["name"] for device in fitting[int(number):int(number) + 1]]
    return [device["name"] for device in sorted(fitting, key=lambda device: device["type"])]


def _one_of(options: Mapping[str, str], key: str, values: Mapping[str, Any]) -> Any:
    if key not in options:
        return None
    if options[key] not in values:
        raise ValueError(f"the option '{key}' cannot be '{options[key]}'")
    return values[options[key]]
