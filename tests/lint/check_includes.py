#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dependencies point one way: each folder includes only what the tables below allow.

A row applies to the files below its folder; the longest matching folder counts.
"""
import fnmatch
import pathlib
import re
import sys

# Folder -> what of ours it may include, as prefixes of the path between the quotes.
OURS = {
    "runtime": ["runtime/", "atoll/runtime.h"],
    "runtime/include": ["atoll/runtime.h"],
    "runtime/base": ["runtime/base/"],
    "runtime/kernels": ["runtime/kernels/", "runtime/base/"],
    "runtime/graph": ["runtime/graph/", "runtime/base/"],
    "runtime/shapes": ["runtime/shapes/", "runtime/graph/", "runtime/base/"],
    "runtime/tflite": ["runtime/tflite/", "runtime/shapes/", "runtime/graph/", "runtime/base/"],
    "runtime/ops": ["runtime/ops/", "runtime/kernels/", "runtime/shapes/", "runtime/graph/",
                    "runtime/base/"],
    "runtime/plan": ["runtime/plan/", "runtime/ops/", "runtime/kernels/", "runtime/graph/",
                     "runtime/base/"],
    "quantize": ["quantize/", "runtime/", "atoll/quantize.h"],
    "quantize/include": ["atoll/"],
    "models/zoo": ["models/zoo/", "runtime/"],
    "driver": ["driver/", "runtime/base/"],
    "driver/isa": ["driver/isa/", "runtime/base/"],
    "driver/profiles": ["driver/profiles/", "driver/device_profiles.inc",
                        "driver/isa/device_shape.h", "runtime/base/"],
    "driver/usb": ["driver/usb/", "runtime/base/"],
    "driver/pcie": ["driver/pcie/", "runtime/base/"],
    "driver/vfio": ["driver/vfio/", "driver/pcie/", "runtime/base/"],
    "driver/recording": ["driver/recording/", "driver/usb/", "driver/pcie/", "runtime/base/"],
    "driver/faults": ["driver/faults/", "driver/atoll1/protocol.h", "driver/atoll1/ring.h",
                      "driver/usb/", "driver/pcie/", "runtime/base/"],
    "driver/atoll1": ["driver/atoll1/", "driver/device/", "driver/isa/", "driver/profiles/",
                      "driver/usb/", "driver/pcie/", "runtime/base/"],
    "driver/coral": ["driver/coral/", "driver/device/", "driver/isa/", "driver/usb/",
                     "driver/pcie/", "runtime/base/"],
    "driver/doctor": ["driver/doctor/", "driver/device/", "driver/device_name.h",
                      "driver/open_device.h", "driver/isa/", "driver/usb/", "driver/pcie/",
                      "driver/coral/", "driver/atoll1/", "driver/self_test.inc", "runtime/base/", "runtime/kernels/cpu_features.h",
                      "runtime/kernels/self_test.h"],
    "driver/device": ["driver/device/", "driver/isa/", "runtime/base/"],
    "driver/emulator": ["driver/", "runtime/base/", "runtime/kernels/"],
    "delegate": ["delegate/", "driver/", "runtime/", "atoll/runtime.h", "atoll/delegate.h"],
    "delegate/include": ["atoll/runtime.h", "atoll/delegate.h"],
    "compat": ["compat/", "atoll/runtime.h", "atoll/delegate.h"],
    "camera/include": ["atoll/"],
    "camera/picture": ["camera/picture/", "atoll/picture", "runtime/base/"],
    "camera/vision": ["camera/vision/", "atoll/vision", "atoll/picture", "atoll/runtime.h",
                      "runtime/base/"],
    "camera/sources": ["camera/sources/", "camera/picture/", "atoll/camera", "atoll/picture",
                       "runtime/base/"],
    "camera/pipeline": ["camera/pipeline/", "camera/picture/", "camera/sources/", "atoll/camera",
                        "atoll/picture", "atoll/vision", "atoll/runtime.h", "runtime/base/"],
    "camera/web": ["camera/web/", "serve/access/", "camera/sources/http_text.h", "atoll/camera", "runtime/base/"],
    "examples": ["camera_program.h", "atoll/"],
    "examples/embed": [],
    "serve/broker": ["serve/broker/", "driver/", "delegate/c_api_handles.h", "runtime/base/",
                     "runtime/c_api.h", "atoll/"],
    "serve/access": ["serve/access/", "runtime/base/"],
    "serve/http": ["serve/http/", "serve/access/", "runtime/base/"],
    "serve/inference": ["serve/inference/", "atoll/", "runtime/base/"],
    "serve/oip": ["serve/oip/", "serve/access/", "serve/http/", "serve/inference/", "atoll/runtime.h",
                  "runtime/base/"],
    "serve/program": ["serve/", "atoll/"],
    "serve/frigate": ["serve/frigate/", "serve/access/", "serve/http/", "atoll/",
                      "runtime/base/sha256.h", "runtime/base/file_descriptor.h"],
    "serve/fleet": ["serve/fleet/", "serve/access/", "serve/dns_sd/", "serve/http/", "serve/inference/", "serve/oip/infer_body.h",
                    "serve/oip/worker.h", "atoll/picture/image.h", "atoll/runtime.h", "atoll/delegate.h", "atoll/atoll.hpp",
                    "runtime/base/sha256.h", "runtime/base/file_descriptor.h", "runtime/base/printable.h"],
    "serve/include": ["atoll/"],
    "serve/grpc": ["serve/grpc/", "serve/inference/", "serve/oip/shared_memory.h", "runtime/base/", "inference.", "atoll/"],
    "serve/dns_sd": ["serve/dns_sd/", "runtime/base/"],
    "serve/network": ["atoll/oip.h", "serve/network/", "serve/dns_sd/", "serve/inference/inference_server.h",
                      "driver/network_module.h", "driver/device/", "driver/isa/", "runtime/base/",
                      "runtime/graph/compiled_op.h", "inference."],
    "serve/kubernetes": ["serve/kubernetes/", "device_plugin.", "runtime/base/", "atoll/delegate.h"],
    "tools": ["tools/", "atoll/", "runtime/base/sha256.h", "runtime/base/login.h",
              "runtime/base/printable.h", "driver/device_name.h"],
    "tools/gadget": ["tools/gadget/", "driver/", "runtime/base/", "runtime/kernels/cpu_features.h"],
    "python": ["python/", "atoll/runtime.h", "atoll/delegate.h"],
    "tests": [""],
    "bench": [""],
}
# Installed, and the vocabulary of all of our C++: any folder may include them.
EVERYWHERE = ("atoll/status.h", "atoll/check.h")
# Within a folder that may be included, parts that only the named files may include.
PRIVATE = {
    "driver/usb/libusb/": ["driver/usb/libusb/*"],
    "driver/emulator/": ["driver/emulator/*", "driver/open_on_bus.cc", "driver/open_emulator.*",
                         "driver/emulator_only.cc", "tools/gadget/main.cc",
                         "tests/*", "bench/*"],
}
# Files that are witnesses of something, and so may include nothing of it.
INDEPENDENT = {
    "driver/emulator/stepped_*": ["runtime/kernels/"],
    "driver/emulator/isa_arithmetic.h": ["runtime/kernels/"],
}
# Library -> (pattern of its headers, files that may include it).
LIBRARIES = {
    "flatbuffers": (r"flatbuffers/.*|.*_generated\.h",
                    ["runtime/tflite/*", "driver/isa/executable.cc", "driver/coral/package.cc",
                     "compat/tflite_delegate/model_writer.cc",
                     "serve/network/executable_model.cc", "tests/*"]),
    "Avahi": (r"avahi-.*", ["serve/dns_sd/dns_sd.cc"]),
    "CPython": (r"Python\.h", ["python/extension/python.h"]),
    "libusb": (r"libusb.*", ["driver/usb/libusb/*", "tests/driver/usb/coral_stub_test.cc"]),
    "Eigen": (r"(unsupported/)?Eigen/.*", ["runtime/kernels/float_products/float_products.inc"]),
    "libjpeg, libpng": (r"jpeglib\.h|jerror\.h|turbojpeg\.h|png\.h",
                        ["camera/picture/image_codecs.cc", "camera/picture/jpeg_codec.cc",
                         "tests/camera/picture/*"]),
    "zlib": (r"zlib\.h", ["camera/sources/*.cc", "tools/atoll/labels.cc", "tools/atoll/dataset.cc", "tests/*"]),
    "libzmq": (r"zmq\.h", ["serve/frigate/zmq_*.cc", "tests/serve/frigate/*"]),
    "nats.c": (r"nats/.*", ["serve/fleet/nats.h"]),
    "libmosquitto": (r"mosquitto\.h", ["tools/atoll/mqtt.cc"]),
    "libevent": (r"event2/.*", ["serve/http/http_server.cc"]),
    "http_parser": (r"http_parser\.h", ["serve/http/request_parser.h"]),
    "OpenSSL": (r"openssl/.*", ["serve/access/tls.cc"]),
    "libcurl": (r"curl/.*", ["tools/atoll/oip_target.cc"]),
    "libzip": (r"zip\.h", ["tools/atoll/array_file.cc"]),
    "fmt, CLI11, nlohmann-json": (r"(fmt|spdlog|CLI|nlohmann)/.*",
                                  ["driver/profiles/device_profile.cc", "quantize/report.cc", "serve/inference/json_text.h", "serve/oip/*", "serve/program/*", "serve/frigate/*.cc", "serve/kubernetes/main.cc", "serve/fleet/*.cc", "tools/*", "camera/*", "examples/*",
                                   "tests/*", "bench/*"]),
    "gRPC": (r"(grpcpp|grpc|google/protobuf)/.*|(inference|device_plugin)\.(grpc\.)?pb\.h",
             ["serve/grpc/*", "serve/kubernetes/plugin.cc", "serve/network/oip_client.cc",
              "tests/serve/*"]),
    "GoogleTest, benchmark": (r"(gtest|gmock|benchmark)/.*", ["tests/*", "bench/*"]),
}


def allowed(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def problems(root):
    for folder in sorted({name.split("/")[0] for name in OURS}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".hpp", ".cc", ".c", ".inc"):
                continue
            path = file.relative_to(root).as_posix()
            row = max((name for name in OURS if path.startswith(name + "/")), key=len)
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
                if not match:
                    continue
                header, where = match[2], f"{path}:{number}"
                for library, (pattern, files) in LIBRARIES.items():
                    if re.fullmatch(pattern, header) and not allowed(path, files):
                        yield f"{where}: {header}: {library} is allowed only in {', '.join(files)}"
                if match[1] == "<" or re.fullmatch(LIBRARIES["flatbuffers"][0], header):
                    continue
                if header not in EVERYWHERE and not header.startswith(tuple(OURS[row])):
                    yield f"{where}: {header}: {row}/ may include only {', '.join(OURS[row])}"
                for pattern, prefixes in INDEPENDENT.items():
                    if fnmatch.fnmatch(path, pattern) and header.startswith(tuple(prefixes)):
                        yield f"{where}: {header}: {pattern} must not depend on it"
                for prefix, files in PRIVATE.items():
                    if header.startswith(prefix) and not allowed(path, files):
                        yield f"{where}: {header}: allowed only in {', '.join(files)}"


found = list(problems(pathlib.Path(sys.argv[1])))
print("\n".join(found) or "Includes follow the tables.")
sys.exit(bool(found))
