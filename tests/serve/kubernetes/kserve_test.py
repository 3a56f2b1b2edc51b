# SPDX-License-Identifier: Apache-2.0
"""The manifests for KServe are what its definitions allow, and the container's command is one that serves.

kserve_schemas.json is the part of KServe's published definitions that the manifests use. No KServe is run.
Environment: ATOLL_SERVE, ATOLL_SOURCE_DIR. Run by Debian's Python, which has Debian's packages.
"""
import copy
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

try:
    import jsonschema
    import yaml
except ImportError as absent:
    print(f"ATOLL-SKIPPED: {absent.name} for Debian's Python is not installed (python3-jsonschema, python3-yaml)")
    sys.exit(0)

SOURCE = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"])
SCHEMAS = json.loads((pathlib.Path(__file__).parent / "kserve_schemas.json").read_text())
LONG = 300


def manifest(name):
    return yaml.safe_load((SOURCE / "serve/kubernetes/kserve" / name).read_text())


def check(value, kind=None):
    jsonschema.validate(value, {"$ref": f"#/{kind or value['kind']}", **SCHEMAS})


class Kserve(unittest.TestCase):
    def setUp(self):
        self.runtime = manifest("serving-runtime.yaml")
        self.service = manifest("inference-service.yaml")

    def test_manifests_are_what_the_definitions_allow(self):
        check(self.runtime, "ServingRuntime")
        check(self.service, "InferenceService")

    def test_the_schemas_find_what_is_wrong(self):
        def broken(manifest_of, *path, value=None):
            wrong = copy.deepcopy(manifest_of)
            at = wrong
            for key in path[:-1]:
                at = at[key]
            if value is None:
                del at[path[-1]]
            else:
                at[path[-1]] = value
            with self.assertRaises(jsonschema.ValidationError, msg=path):
                check(wrong, manifest_of["kind"])
        container = ("spec", "containers", 0)
        broken(self.runtime, "spec", "containers")
        broken(self.runtime, *container, "name")
        broken(self.runtime, *container, "livenessProb", value={})
        broken(self.runtime, *container, "ports", 0, "containerPort", value="8080")
        broken(self.runtime, "spec", "supportedModelFormats", 0, "priority", value=0)
        broken(self.runtime, "apiVersion", value="serving.kserve.io/v1beta1")
        broken(self.service, "spec", "predictor", "model", "modelFormat", "name")
        broken(self.service, "spec", "predictor", "model", "storageURI", value="pvc://x")
        broken(self.service, "spec", "predictor", "maxReplicas", value="3")

    def test_the_service_names_the_runtime(self):
        model = self.service["spec"]["predictor"]["model"]
        self.assertEqual(model["runtime"], self.runtime["metadata"]["name"])
        formats = [(one["name"], one["version"]) for one in self.runtime["spec"]["supportedModelFormats"]]
        self.assertIn((model["modelFormat"]["name"], model["modelFormat"]["version"]), formats)
        self.assertIn(model["protocolVersion"], self.runtime["spec"]["protocolVersions"])

    def test_the_command_serves(self):
        """As the kubelet starts it and KServe fills it in, but for the places on this computer."""
        [container] = self.runtime["spec"]["containers"]
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "simple/1").mkdir(parents=True)
            shutil.copy(SOURCE / "tests/models/simple.tflite", pathlib.Path(place) / "simple/1/model.tflite")
            words = [word.replace("{{.Name}}", "detectors").replace("{{.Namespace}}", "default")
                     .replace("/mnt/models", place).replace(":8080", ":0").replace(":9000", ":0")
                     for word in [*container["command"], *container["args"]]]
            self.assertFalse([word for word in words if "{{" in word])
            self.assertEqual(words[0], "atoll-serve")
            server = subprocess.Popen([os.environ["ATOLL_SERVE"], *words[1:], "--device", "cpu"],
                                      stdout=subprocess.PIPE)
            try:
                port = int(re.search(rb":(\d+)/", server.stdout.readline())[1])

                def status(path, host):
                    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
                    try:
                        with urllib.request.urlopen(request, timeout=LONG) as answer:
                            return answer.status
                    except urllib.error.HTTPError as error:
                        return error.code
                for probe in ("readinessProbe", "livenessProbe"):
                    at = container[probe]["httpGet"]
                    self.assertEqual(at["port"], 8080)
                    self.assertEqual(status(at["path"], "10.1.2.3:8080"), 200)
                for host in ("detectors-predictor", "detectors-predictor.default.svc.cluster.local",
                             "detectors-default.example.com"):
                    self.assertEqual(status("/v2/models/simple", host), 200, host)
                self.assertEqual(status("/v2/models/simple", "elsewhere.example"), 421)
                annotations = self.runtime["spec"]["annotations"]
                self.assertEqual(annotations["prometheus.kserve.io/port"], "8080")
                self.assertEqual(status(annotations["prometheus.kserve.io/path"], "10.1.2.3"), 200)
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(LONG), 0)
            finally:
                server.kill()
                server.wait()
                server.stdout.close()


if __name__ == "__main__":
    unittest.main()
