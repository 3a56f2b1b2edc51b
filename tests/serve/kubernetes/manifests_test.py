#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests are YAML of the kinds that they say, and the options in them are the programs'.

Environment: ATOLL_COMMAND, ATOLL_DEVICE_PLUGIN, ATOLL_SOURCE_DIR.
"""
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:
    print("ATOLL-SKIPPED: python3-yaml is not installed")
    sys.exit(0)

MANIFESTS = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"]) / "serve/kubernetes/manifests"
PROGRAMS = {"atoll": os.environ["ATOLL_COMMAND"],
            "atoll-device-plugin": os.environ["ATOLL_DEVICE_PLUGIN"]}


def manifests():
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            yield path.name, manifest


class Manifests(unittest.TestCase):
    def pods(self):
        for name, manifest in manifests():
            kind = manifest["kind"]
            self.assertEqual(manifest["apiVersion"], {"DaemonSet": "apps/v1", "Pod": "v1"}[kind])
            if kind == "DaemonSet":
                template = manifest["spec"]["template"]
                self.assertEqual(manifest["spec"]["selector"]["matchLabels"],
                                 template["metadata"]["labels"], name)
                yield name, template["spec"]
            else:
                yield name, manifest["spec"]

    def test_options_are_those_of_the_programs(self):
        count = 0
        for name, pod in self.pods():
            for container in pod["containers"]:
                words = container["command"]
                program = [PROGRAMS[words[0]]]
                if words[0] == "atoll":
                    program.append(words[1])
                text = subprocess.run([*program, "--help"], capture_output=True, text=True,
                                      check=True).stdout
                for word in words:
                    if word.startswith("--"):
                        self.assertIn(word, text.replace(",", " ").split(), name)
                        count += 1
        self.assertGreater(count, 3)

    def test_volumes_are_there(self):
        for name, pod in self.pods():
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            mounted = {mount["name"] for container in pod["containers"]
                       for mount in container.get("volumeMounts", [])}
            self.assertEqual(volumes, mounted, name)

    def test_pods_ask_for_what_is_offered(self):
        names = [limit for _, pod in self.pods() for container in pod["containers"]
                 for limit in container.get("resources", {}).get("limits", {})]
        self.assertEqual(names, ["atoll.dev/edgetpu"])


if __name__ == "__main__":
    unittest.main()
