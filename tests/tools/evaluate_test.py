# SPDX-License-Identifier: Apache-2.0
"""`atoll evaluate` on data of every kind: the same numbers as counted here, and sentences for what
is none."""
import gzip
import json
import struct
import unittest

from atoll_command import (FASHION_DATA, FASHION_LABELS, FASHION_MODEL, SOURCE, CommandTest, need,
                           run)

SCENES_MODEL = SOURCE / "models/scenes/scenes_int8.tflite"
COUNT = 60
DEEP = "a million lists, one in the other"


def test_set(name, header):
    with gzip.open(FASHION_DATA / name) as file:
        return file.read()[header:]


class Refusals(CommandTest):
    def test_file_that_is_no_coco(self):
        for content in (b"{", b"[]", b'{"categories": 3}'):
            command = ["evaluate", FASHION_MODEL, self.file("instances.json", content)]
            self.fail_with(2, command, "not as COCO has instances", "give its instances_")
            self.assertNotIn("exception", run(*command).stderr)


class Evaluate(CommandTest):
    @classmethod
    def setUpClass(cls):
        need(FASHION_DATA)
        cls.pixels = test_set("t10k-images-idx3-ubyte.gz", 16)
        cls.classes = test_set("t10k-labels-idx1-ubyte.gz", 8)

    def picture(self, path, index):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P5 28 28 255\n" + self.pixels[index * 784:(index + 1) * 784])
        return path

    def evaluate(self, *words):
        return self.json("evaluate", *words)

    def answers(self, paths):
        report = self.json("classify", FASHION_MODEL, *paths, "--device", "cpu")
        return [[entry["index"] for entry in image["top"]] for image in report["images"]]

    def test_folders(self):
        labels = FASHION_LABELS.read_text(encoding="utf-8").splitlines()
        paths = []
        for index in range(COUNT):
            for place in ("number", "name"):
                name = labels[self.classes[index]].replace("/", "-")
                folder = str(self.classes[index]) if place == "number" else name
                paths.append(self.picture(self.directory / place / folder / f"{index}.pgm", index))
        answers = self.answers(paths[::2])
        first = sum(top[0] == self.classes[i] for i, top in enumerate(answers))
        five = sum(self.classes[i] in top for i, top in enumerate(answers))
        report = self.evaluate(FASHION_MODEL, self.directory / "number")
        self.assertEqual((report["task"], report["pictures"]), ("classify", COUNT))
        self.assertEqual([entry["device"] for entry in report["results"]], ["cpu", "emu"])
        for entry in report["results"]:
            self.assertEqual(entry["top1"]["value"], first / COUNT)
            self.assertEqual(entry["top5"]["value"], five / COUNT)
            self.assertLess(entry["top1"]["low"], first / COUNT)
            self.assertEqual(entry["same_answer_as_first"]["value"], 1)
        named = self.file("labels.txt", "\n".join(
            label.replace("/", "-") for label in labels).encode())
        by_name = self.evaluate(FASHION_MODEL, self.directory / "name", "--labels", named)
        self.assertEqual(by_name["results"][0]["top1"], report["results"][0]["top1"])
        some = self.evaluate(FASHION_MODEL, self.directory / "number", "--limit", "7", "--device",
                             "cpu")
        self.assertEqual((some["pictures"], len(some["results"])), (7, 1))

    def test_fashion_mnist(self):
        report = self.evaluate(FASHION_MODEL, FASHION_DATA, "--limit", "500", "--device", "cpu")
        self.assertGreater(report["results"][0]["top1"]["value"], 0.9)
        self.assertLess(report["results"][0]["top1"]["value"], 0.97)
        text = self.succeed("evaluate", FASHION_MODEL, FASHION_DATA, "--limit", "50", "--device",
                            "cpu").stdout
        self.assertRegex(text, r"50 pictures .*\n.* on cpu\n  top1 +\d+\.\d\d % \[")

    def test_detection(self):
        scenes = SOURCE / "tests/golden/scenes/easy"
        pictures = sorted(scenes.glob("*.jpg"))
        found = self.json("detect", SCENES_MODEL, *pictures, "--device", "cpu", "--threshold", "0.5")
        annotations = []
        for number, image in enumerate(found["images"]):
            for thing in image["detections"]:
                box = thing["box"]
                annotations.append({"image_id": number, "category_id": thing["index"] + 1, "bbox": [
                    box["left"], box["top"], box["right"] - box["left"], box["bottom"] - box["top"]]})
        self.assertTrue(annotations)
        truth = {"images": [{"id": number, "file_name": path.name}
                            for number, path in enumerate(pictures)],
                 "categories": [{"id": index + 1, "name": str(index)} for index in range(10)],
                 "annotations": annotations}
        data = self.file("truth.json", json.dumps(truth).encode())
        report = self.evaluate(SCENES_MODEL, data, "--pictures", scenes, "--device", "cpu")
        self.assertEqual(report["task"], "detect")
        # Its own answers; what is less certain than they are comes after them.
        self.assertGreater(report["results"][0]["mAP50"]["value"], 0.99)
        for annotation in annotations:
            annotation["category_id"] = annotation["category_id"] % 10 + 1
        wrong = self.evaluate(SCENES_MODEL, self.file("wrong.json", json.dumps(truth).encode()),
                              "--pictures", scenes, "--device", "cpu")
        self.assertLess(wrong["results"][0]["mAP50"]["value"], 0.3)

    def refused(self, code, data, *mentions, model=FASHION_MODEL):
        self.fail_with(code, ["evaluate", model, data, "--device", "cpu"], *mentions)

    def test_refusals(self):
        self.fail_with(2, ["evaluate", FASHION_MODEL], "the data")
        self.refused(1, self.directory / "absent", "absent")
        self.refused(2, self.directory, "folders for their classes")
        self.picture(self.directory / "many/10/a.pgm", 0)
        self.refused(2, self.directory / "many", "11 classes")
        (self.directory / "damaged/1").mkdir(parents=True)
        (self.directory / "damaged/1/x.jpg").write_bytes(b"\xff\xd8 no picture")
        self.refused(1, self.directory / "damaged", "x.jpg")
        self.picture(self.directory / "masks2/images/a.pgm", 0)
        (self.directory / "masks2/masks").mkdir()
        self.refused(2, self.directory / "masks2", "no mask")
        self.refused(4, self.directory / "many", "a detector", model=SCENES_MODEL)
        folder = self.directory / "idx"
        folder.mkdir()
        (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 1) + b"\0")
        for content in (b"", b"\0" * 16, struct.pack(">IIII", 0x803, 1, 28, 28) + b"\0" * 783,
                        struct.pack(">IIII", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1),
                        struct.pack(">IIII", 0x803, 2, 28, 28) + b"\0" * 1568):
            (folder / "t10k-images-idx3-ubyte").write_bytes(content)
            self.refused(2, folder, "Fashion-MNIST")

    def test_damaged_json(self):
        good = {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "x"}],
                "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}]}
        for change in ({"images": 5}, {"categories": [{}]}, {"annotations": [{"image_id": 7}]},
                       {"annotations": [{"image_id": 9, "category_id": 1, "bbox": [0, 0, 1, 1]}]},
                       {"annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, -1, 1]}]},
                       {"annotations": [{"image_id": 1, "category_id": 1, "bbox": [0]}]},
                       {"annotations": [{"image_id": 1, "category_id": 1,
                                         "bbox": [0, 0, -1, 1, DEEP]}]},
                       {"annotations": [{"image_id": 1, "category_id": 1, "bbox": DEEP}]},
                       {"annotations": [{"image_id": DEEP, "category_id": 1, "bbox": [0]}]},
                       {"images": []}, {"categories": [{"id": 2**62, "name": "x"},
                                                       {"id": -2**62, "name": "y"}]}):
            text = json.dumps({**good, **change}).replace(f'"{DEEP}"', "[" * 10**6 + "]" * 10**6)
            data = self.file("data.json", text.encode())
            result = run("evaluate", SCENES_MODEL, data, "--device", "cpu")
            self.assertEqual(result.code, 2, (change, result.stderr))
            self.assert_sentence(change, result)
        result = run("evaluate", SCENES_MODEL, self.file("data.json", b"[[[["), "--device", "cpu")
        self.assertEqual(result.code, 2)
        self.assert_sentence("[", result)


if __name__ == "__main__":
    unittest.main()
