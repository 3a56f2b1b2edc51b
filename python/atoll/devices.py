# SPDX-License-Identifier: Apache-2.0
"""What this computer has to run models on."""
import dataclasses
from typing import List

from atoll import _atoll


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that a model can run on."""
    name: str  # what `device=` takes: "emu", "usb:2-3"
    description: str
    available: bool  # can be opened now
    is_default: bool  # what "auto" takes


@dataclasses.dataclass(frozen=True)
class Finding:
    """Why a device cannot be used, or is slower than it could be."""
    level: str  # "fine", "note", "warning" or "error"
    code: str  # for programs: "no_permission"
    device: str  # "usb:2-3.1", or "" if it is about none
    message: str
    fix: str  # what to do; "" for nothing


def devices() -> List[Device]:
    """The devices that are there now; the CPU comes last. Opens none."""
    fields = [field.name for field in dataclasses.fields(Device)]
    return [Device(**{field: found[field] for field in fields}) for found in _atoll.devices()]


def diagnose() -> List[Finding]:
    """Looks for what keeps devices from being used, as `atoll doctor` does. Opens none."""
    return [Finding(**found) for found in _atoll.diagnose()]
