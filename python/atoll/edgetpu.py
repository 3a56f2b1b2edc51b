# SPDX-License-Identifier: Apache-2.0
"""Edge TPUs by the names that Google's software has for them.

"" is any device, ":N" the N-th of all, "usb" and "pci" the first on that bus, "usb:N" and "pci:N" the
N-th on it. The environment variable ATOLL_EDGETPU_EMULATE=1 says that an emulated device is there,
on USB, after all real ones.
"""
import os
import re
from typing import Any, Dict, List, Mapping

from atoll import _atoll

# What programs call the library that drives Edge TPUs, on Linux, macOS and Windows.
LIBRARY = re.compile(r"(.*[/\\])?(libedgetpu\.so(\.\d+)*|libedgetpu(\.\d+)*\.dylib|edgetpu\.dll)")

_PERFORMANCES = {"Low": "low", "Medium": "medium", "High": "high", "Max": "max"}


def _found() -> List[Dict[str, str]]:
    """type, path and Atoll's name of each device."""
    found = []
    for device in _atoll.devices():
        bus, _, place = device["name"].partition(":")
        if bus == "usb" and place:  # else it says that there is none
            found.append({"type": "usb", "path": f"/sys/bus/usb/devices/{place}",
                          "name": device["name"]})
        elif bus == "pci" and place or device["name"].startswith("/dev/apex"):
            path = device["name"] if bus != "pci" else f"/dev/apex_{place}"
            found.append({"type": "pci", "path": path, "name": device["name"]})
    if os.environ.get("ATOLL_EDGETPU_EMULATE", "0") not in ("", "0"):
        found.append({"type": "usb", "path": "emu", "name": "emu"})
    return found


def list_edge_tpus() -> List[Dict[str, str]]:
    """{'type': 'usb' or 'pci', 'path': ...} of each device that is there."""
    return [{"type": device["type"], "path": device["path"]} for device in _found()]


def open_edge_tpu(options: Mapping[str, str]) -> _atoll.Delegate:
    """The device that the options of Google's library name. ValueError if it is not there, or if an
    option that counts has a value that is none; other options are ignored, as they are there."""
    device = options.get("device", "")
    name = re.fullmatch(r"(usb|pci)?(?::(\d+))?", device)
    if name is None:
        raise ValueError(f"there is no device '{device}'; names are '', ':N', 'usb', 'usb:N', "
                         "'pci' and 'pci:N'")
    bus, number = name.groups()
    performance = None
    if number is not None:
        performance = _one_of(options, "Performance", _PERFORMANCES)
        _one_of(options, "Usb.AlwaysDfu", {"True": True, "False": False})
        _one_of(options, "Usb.MaxBulkInQueueLength", {str(n): n for n in range(257)})
    candidates = [found for found in _found() if bus in (None, found["type"])]
    if int(number or 0) >= len(candidates):
        raise ValueError(
            f"there is no Edge TPU '{device}': {len(candidates)} such devices were found, counted "
            "from 0; with ATOLL_EDGETPU_EMULATE=1 an emulated one is there")
    found = candidates[int(number or 0)]["name"]
    try:
        return _atoll.Delegate(found, performance=None if found == "emu" else performance)
    except _atoll.Error as error:
        raise ValueError(str(error)) from error


def _one_of(options: Mapping[str, str], key: str, values: Mapping[str, Any]) -> Any:
    if key not in options:
        return None
    if options[key] not in values:
        raise ValueError(f"the option '{key}' cannot be '{options[key]}'")
    return values[options[key]]
