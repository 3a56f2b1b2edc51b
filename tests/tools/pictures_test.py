# SPDX-License-Identifier: Apache-2.0
"""`atoll detect`, `segment` and `pose` on public models: what TensorFlow Lite found in the same
pictures, the files that they write, and what they refuse."""
import base64
import collections
import csv
import json
import re
import struct
import unittest
import zlib

from atoll_command import FASHION_MODEL, SHARED, CommandTest, need, run, tensor

MODELS = SHARED / "models"
IMAGES = SHARED / "images"
GOLDEN = SHARED / "golden/images"
DETECTOR = MODELS / "ssd_mobilenet_v1.tflite"
COCO = MODELS / "coco_labels.txt"
SEGMENTER = MODELS / "deeplabv3_mnv2_dm05_pascal_quant.tflite"
POSENET = MODELS / "posenet_mobilenet_v1_075_353_481_16_quant_decoder.tflite"
MOVENET = MODELS / "movenet_single_pose_lightning_ptq.tflite"
CLASSIFIER = MODELS / "mobilenet_v1_0.25_128_quant.tflite"
BIRD = IMAGES / "bird_segmentation.bmp"

USAGE, BAD_MODEL = 2, 4
CPU = ("--device", "cpu")
VOC = ("background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse "
       "motorbike person pottedplant sheep sofa train tvmonitor").split()


def golden_outputs(model, image):
    """What TensorFlow Lite gave for this picture, resized in the same way; float32 as lists."""
    outputs = json.loads((GOLDEN / f"{model.stem}__{image}.json").read_text())["outputs"]
    values = []
    for output in outputs:
        data = base64.b64decode(output.get("base64", ""))
        values.append(struct.unpack(f"<{len(data) // 4}f", data))
    return values


def jpeg_size(path):
    """Width and height from the frame header of a baseline JPEG that begins and ends as one."""
    data = path.read_bytes()
    assert data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9", path
    at = 2
    while data[at + 1] != 0xc0:
        at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    height, width = struct.unpack(">HH", data[at + 5:at + 9])
    return width, height


def read_indexed_png(path):
    """Width, height, palette and pixels of an 8-bit PNG with a palette."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks = collections.defaultdict(bytes)
    at = 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        chunks[kind] += data[at + 8:at + 8 + size]
        at += 12 + size
    width, height, depth, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, color) == (8, 3)
    raw = zlib.decompress(chunks[b"IDAT"])
    pixels, above = bytearray(), bytearray(width)
    for start in range(0, len(raw), width + 1):
        row = bytearray(raw[start + 1:start + 1 + width])
        for x in range(width):
            left = row[x - 1] if x else 0
            corner = above[x - 1] if x else 0
            near = min((left, above[x], corner), key=lambda v: abs(left + above[x] - corner - v))
            guess = (0, left, above[x], (left + above[x]) // 2, near)[raw[start]]
            row[x] = (row[x] + guess) & 255
        pixels += row
        above = row
    palette = chunks[b"PLTE"]
    return width, height, [tuple(palette[i:i + 3]) for i in range(0, len(palette), 3)], pixels


class Pictures(CommandTest):
    def only_image(self, *arguments):
        images = self.json(*arguments)["images"]
        self.assertEqual(len(images), 1)
        return images[0]

    def assert_decodes(self, path, width, height):
        self.assertEqual(jpeg_size(path), (width, height))
        self.succeed("classify", FASHION_MODEL, path, *CPU)


class Detect(Pictures):
    def test_equals_tensorflow_lite(self):
        for picture, stem in (("kite_and_cold.jpg", "kite_and_cold"),
                              ("grace_hopper.bmp", "grace_hopper"), ("cat_720p.jpg", "cat_720p")):
            for device in ("cpu", "emu"):
                with self.subTest(picture, device=device):
                    image = self.only_image("detect", DETECTOR, IMAGES / picture, "--device",
                                            device, "--threshold", "0")
                    boxes, classes, scores, count = golden_outputs(DETECTOR, stem)
                    self.assertEqual(len(image["detections"]), int(count[0]))
                    for i, found in enumerate(image["detections"]):
                        self.assertEqual(found["index"], int(classes[i]))
                        self.assertAlmostEqual(found["score"], scores[i], places=6)
                        edges = [min(max(edge, 0), 1) for edge in boxes[4 * i:4 * i + 4]]
                        for name, edge in zip(("top", "left", "bottom", "right"), edges):
                            size = image["height" if name in ("top", "bottom") else "width"]
                            self.assertAlmostEqual(found["box"][name], edge * size, delta=0.051)

    def test_names_and_threshold(self):
        arguments = ("detect", DETECTOR, IMAGES / "grace_hopper.bmp", *CPU, "--labels", COCO)
        found = self.only_image(*arguments)["detections"]
        self.assertEqual([entry["label"] for entry in found], ["person", "tie", "tie"])
        self.assertEqual(self.only_image(*arguments, "--max", "1")["detections"], found[:1])
        self.assertEqual(self.only_image(*arguments, "--threshold", "0.7")["detections"], found[:1])
        self.assertIn("nothing with a score of 0.9",
                      self.succeed(*arguments, "--threshold", "0.9").stdout)
        text = self.succeed(*arguments).stdout.splitlines()
        self.assertEqual(len(text), 4)
        self.assertRegex(text[1], r"^  0\.7109 +0 +left +0\.0 +top +32\.6 +right +512\.0 +bottom "
                                  r"+591\.1  person$")

    def test_label_files_with_a_background(self):
        """This operator does not count it, so the file is shifted by itself."""
        coco = COCO.read_text()
        arguments = ("detect", DETECTOR, IMAGES / "cat.bmp", *CPU, "--max", "1", "--labels")
        for first, offset, label in (("", (), "cat"), ("???\n", (), "cat"),
                                     ("background\n", (), "cat"),
                                     ("???\n", ("--label-offset", "0"), "bird"),
                                     ("first\n", ("--label-offset", "1"), "cat")):
            labels = self.file("labels.txt", (first + coco).encode())
            report = self.json(*arguments, labels, *offset)
            self.assertEqual(report["images"][0]["detections"][0]["label"], label, (first, offset))
            self.assertEqual(report["warnings"], [])
        few = self.file("few.txt", b"person\nbicycle\n")
        self.fail_with(USAGE, (*arguments, few), "2 labels", "90 classes")

    def test_annotated_picture(self):
        output = self.directory / "new/boxes.jpg"
        output.parent.mkdir()
        image = self.only_image("detect", DETECTOR, IMAGES / "cat_720p.jpg", *CPU, "--output",
                                output)
        self.assertEqual(image["output"], str(output))
        self.assert_decodes(output, 1280, 720)

    def test_several_annotated_pictures(self):
        output = self.directory / "annotated"
        images = self.json("detect", DETECTOR, IMAGES / "cat.bmp", IMAGES / "person.bmp",
                           IMAGES / "cat.bmp", *CPU, "--output", output)["images"]
        self.assertEqual([image["output"] for image in images],
                         [str(output / name) for name in ("cat.jpg", "person.jpg", "cat-2.jpg")])
        self.assertEqual(len(list(output.iterdir())), 3)
        self.assert_decodes(output / "person.jpg", 96, 96)
        self.assertEqual((output / "cat.jpg").read_bytes(), (output / "cat-2.jpg").read_bytes())

    def test_leaves_nothing_behind(self):
        """The second picture is none, so the first has no result either."""
        output = self.directory / "annotated"
        self.fail_with(1, ("detect", DETECTOR, IMAGES / "cat.bmp", COCO, *CPU, "--output", output),
                       "coco_labels.txt")
        self.assertEqual(list(output.iterdir()), [])

    def test_bad_outputs(self):
        cat = self.file("cat.jpg", (IMAGES / "cat_720p.jpg").read_bytes())
        for output, mention in ((self.directory, "overwrite"), (cat, "overwrite"),
                                (self.directory / "boxes.png", ".jpg")):
            self.fail_with(USAGE, ("detect", DETECTOR, cat, *CPU, "--output", output), mention)
        self.fail_with(USAGE, ("detect", DETECTOR, cat, cat, *CPU, "--output",
                               self.directory / "two.jpg"), "2 pictures")
        self.assertEqual(cat.read_bytes(), (IMAGES / "cat_720p.jpg").read_bytes())
        self.fail_with(1, ("detect", DETECTOR, cat, *CPU, "--output", cat / "deep"), "cat.jpg")

    def test_bad_arguments(self):
        for arguments in (("--threshold", "nan"), ("--threshold", "much"), ("--max", "0"),
                          ("--label-offset", "1")):
            self.fail_with(USAGE, ("detect", DETECTOR, BIRD, *CPU, *arguments))


class Segment(Pictures):
    def labels(self):
        return self.file("voc.txt", "\n".join(VOC).encode())

    def test_equals_tensorflow_lite(self):
        """The picture has the model's size. The mask's bytes are those of TensorFlow Lite, whose
        map is known by the hash of its int64 numbers; `run` gives these."""
        golden = json.loads((GOLDEN / f"{SEGMENTER.stem}__{BIRD.stem}.json").read_text())
        for device in ("cpu", "emu"):
            run = self.json("run", SEGMENTER, "--device", device, "--input",
                            f"0={GOLDEN / (SEGMENTER.stem + '__' + BIRD.stem + '.raw')}",
                            "--output-dir", self.directory)
            self.assertEqual(run["outputs"][0]["sha256"], golden["outputs"][0]["sha256"])
            numbers = (self.directory / "out_0.raw").read_bytes()[::8]
            png, pgm = self.directory / "mask.png", self.directory / "mask.pgm"
            for mask in (png, pgm):
                image = self.only_image("segment", SEGMENTER, BIRD, "--device", device, "--labels",
                                        self.labels(), "--mask", mask)
                self.assertEqual(image["mask"], str(mask))
            width, height, palette, pixels = read_indexed_png(png)
            self.assertEqual((width, height), (513, 513))
            self.assertEqual(pixels, numbers)
            self.assertEqual(palette[:4], [(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0)])
            self.assertEqual(pgm.read_bytes(), b"P5\n513 513\n255\n" + numbers)

            counts = collections.Counter(numbers).most_common()
            self.assertEqual([(entry["index"], entry["pixels"]) for entry in image["classes"]],
                             counts)
            self.assertEqual([entry["label"] for entry in image["classes"]],
                             [VOC[index] for index, _ in counts])
            self.assertAlmostEqual(sum(entry["share"] for entry in image["classes"]), 1)
            self.assertEqual((image["map_width"], image["map_height"]), (513, 513))

    def test_finds_the_bird(self):
        """Most pixels have the class that the annotators gave them."""
        data = (IMAGES / "bird_segmentation_mask.bmp").read_bytes()
        start = struct.unpack("<I", data[10:14])[0]
        rows = [data[start + y * 516:start + y * 516 + 513] for y in reversed(range(513))]
        mask = self.directory / "mask.pgm"
        self.succeed("segment", SEGMENTER, BIRD, *CPU, "--mask", mask)
        found = mask.read_bytes()[-513 * 513:]
        equal = sum(a == b for a, b in zip(found, b"".join(rows), strict=True))
        self.assertGreater(equal / len(found), 0.96)

    def test_text(self):
        text = self.succeed("segment", SEGMENTER, BIRD, *CPU, "--labels", self.labels()).stdout
        self.assertRegex(text, r"(?m)^   81\.17 %    213,611 pixels     0  background$")

    def test_annotated_picture_of_another_size(self):
        output, masks = self.directory / "classes.jpg", self.directory / "masks"
        image = self.only_image("segment", SEGMENTER, IMAGES / "cat_720p.jpg", *CPU, "--output",
                                output, "--mask", masks)
        self.assert_decodes(output, 1280, 720)
        self.assertEqual(image["mask"], str(masks / "cat_720p.png"))
        self.assertEqual(read_indexed_png(masks / "cat_720p.png")[:2], (513, 513))
        largest = [entry["index"] for entry in image["classes"][:2]]
        self.assertIn(VOC.index("cat"), largest)

    def test_both_files_or_none(self):
        output = self.directory / "classes.jpg"
        blocked = self.file("blocked", b"")
        self.fail_with(1, ("segment", SEGMENTER, BIRD, *CPU, "--output", output, "--mask",
                           blocked / "masks"), "--mask")
        self.assertFalse(output.exists())


class Pose(Pictures):
    NAMES = ["nose"] + [f"{side}_{part}" for part in
                        ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
                        for side in ("left", "right")]

    def test_movenet_equals_tensorflow_lite(self):
        values = golden_outputs(MOVENET, "squat")[0]
        for device in ("cpu", "emu"):
            image = self.only_image("pose", MOVENET, IMAGES / "squat.bmp", "--device", device)
            self.assertEqual((image["width"], image["height"]), (500, 610))
            pose, = image["poses"]
            self.assertEqual([keypoint["name"] for keypoint in pose["keypoints"]], self.NAMES)
            for k, keypoint in enumerate(pose["keypoints"]):
                y, x, score = values[3 * k:3 * k + 3]
                self.assertAlmostEqual(keypoint["score"], score, places=6)
                self.assertAlmostEqual(keypoint["x"], x * 500, delta=0.051)
                self.assertAlmostEqual(keypoint["y"], y * 610, delta=0.051)
            self.assertAlmostEqual(pose["score"], sum(values[2::3]) / 17, places=5)

    def test_posenet_equals_tensorflow_lite(self):
        places, scores, poses, count = golden_outputs(POSENET, "posenet_test_image")
        for device in ("cpu", "emu"):
            image = self.only_image("pose", POSENET, IMAGES / "posenet_test_image.bmp", "--device",
                                    device, "--threshold", "0")
            self.assertEqual(len(image["poses"]), int(count[0]))
            for i, pose in enumerate(image["poses"]):
                self.assertAlmostEqual(pose["score"], poses[i], places=5)
                for k, keypoint in enumerate(pose["keypoints"]):
                    y, x = places[(17 * i + k) * 2:(17 * i + k) * 2 + 2]
                    self.assertAlmostEqual(keypoint["score"], scores[17 * i + k], places=5)
                    self.assertAlmostEqual(keypoint["x"], x / 481 * 640, delta=0.06)
                    self.assertAlmostEqual(keypoint["y"], y / 353 * 480, delta=0.06)

    def test_finds_what_the_publisher_finds(self):
        """Their picture was resized by another library, so places agree within pixels."""
        reference = MODELS / "reference" / f"{POSENET.stem}_reference.csv"
        with open(reference, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        image = self.only_image("pose", POSENET, IMAGES / "posenet_test_image.bmp", *CPU)
        self.assertEqual(len(image["poses"]), 2)
        for row in rows:
            if int(row["pose_id"]) >= 2 or float(row["keypoint_score"]) < 0.5:
                continue
            keypoint = image["poses"][int(row["pose_id"])]["keypoints"][int(row["keypoint_id"])]
            self.assertAlmostEqual(keypoint["x"], float(row["keypoint_x"]) * 640, delta=6)
            self.assertAlmostEqual(keypoint["y"], float(row["keypoint_y"]) * 480, delta=6)

    def test_text_and_picture(self):
        output = self.directory / "skeleton.jpeg"
        text = self.succeed("pose", MOVENET, IMAGES / "squat.bmp", *CPU, "--output", output).stdout
        self.assertEqual(len(text.splitlines()), 2 + 17)
        self.assertRegex(text, r"\n  0\.5\d{3}  person 1\n    0\.4\d{3}  nose +x +\d+\.\d  y +\d+")
        self.assert_decodes(output, 500, 610)
        self.assertIn("nobody", self.succeed("pose", MOVENET, IMAGES / "squat.bmp", *CPU,
                                             "--threshold", "0.9").stdout)


class WrongTask(Pictures):
    def test_the_right_subcommand_is_named(self):
        models = {"classify": CLASSIFIER, "detect": DETECTOR, "segment": SEGMENTER,
                  "pose": MOVENET}
        for command in models:
            for right, model in models.items():
                if command == right:
                    continue
                with self.subTest(command, model=model.name):
                    self.fail_with(BAD_MODEL, (command, model, BIRD, *CPU), f"use 'atoll {right}'")

    def test_inspect_names_it_too(self):
        for model, task in ((CLASSIFIER, "classify"), (DETECTOR, "detect"),
                            (SEGMENTER, "segment"), (POSENET, "pose"), (MOVENET, "pose"),
                            (MODELS / "mlperf_tiny_ad01_int8.tflite", "none")):
            report = self.json("inspect", model, *CPU)
            self.assertEqual(report["task"], task)
            self.assertEqual(report["warnings"], [])


class Warnings(Pictures):
    def codes(self, *arguments):
        return [warning["code"] for warning in self.json(*arguments)["warnings"]]

    def test_nothing_is_wrong_with_the_public_models(self):
        for command, model in (("classify", CLASSIFIER), ("detect", DETECTOR),
                               ("segment", SEGMENTER), ("pose", POSENET), ("pose", MOVENET)):
            for device in ("cpu", "emu"):
                self.assertEqual(self.codes(command, model, BIRD, "--device", device), [])

    def test_label_count(self):
        imagenet = (MODELS / "imagenet_labels.txt").read_text()
        arguments = ("classify", CLASSIFIER, IMAGES / "parrot.jpg", *CPU, "--labels")
        without_background = self.file("1000.txt", imagenet.split("\n", 1)[1].encode())
        self.fail_with(USAGE, (*arguments, without_background), "1000 labels", "1001 classes",
                       "--label-offset -1")
        wanted = self.json(*arguments, MODELS / "imagenet_labels.txt")["images"][0]["top"][0]
        shifted = self.json(*arguments, without_background, "--label-offset", "-1")
        self.assertEqual(shifted["images"][0]["top"][0], wanted)
        self.assertEqual(shifted["warnings"], [])

        more = self.file("more.txt", (imagenet + "one more\n").encode())
        result = self.succeed(*arguments, more)
        self.assertRegex(result.stderr, r"\Aatoll: warning: [^\n]*1002[^\n]*1001[^\n]*"
                                        r"--label-offset 1\n\Z")
        self.assertEqual(self.codes(*arguments, more), ["label_count"])
        for labels in (without_background, more):
            self.assertEqual(self.codes("inspect", CLASSIFIER, *CPU, "--labels", labels),
                             ["label_count"])
            self.assertRegex(self.succeed("inspect", CLASSIFIER, *CPU, "--labels", labels).stdout,
                             r"(?m)^warning  the label file [^\n]*1001 ")

    def test_float_input(self):
        """A warning with the fix, which silences it."""
        quantize = {"builtin_code": 114, "deprecated_builtin_code": 114, "version": 1}
        model = self.model([tensor("photo", [1, 32, 32, 3], 0, quantization={}),
                            tensor("map", [1, 32, 32, 3])], quantize)
        arguments = ("segment", model, BIRD, *CPU)
        self.assertIn("input_normalization", self.codes(*arguments))
        self.assertNotIn("input_normalization",
                         self.codes(*arguments, "--mean", "0", "--std", "255"))
        result = self.succeed(*arguments)
        self.assertRegex(result.stderr, r"(?m)^atoll: warning: [^\n]*'photo', float32 "
                                        r"\[1,32,32,3\][^\n]*--mean 0 --std 255")
        self.assertIn("input_normalization", self.codes("inspect", model, *CPU))

    def test_nothing_on_the_device(self):
        dequantize = {"builtin_code": 6, "deprecated_builtin_code": 6, "version": 2}
        model = self.model([tensor("x", [1, 4]), tensor("y", [1, 4], 0, quantization={})],
                           dequantize)
        for command in (("run",), ("inspect",), ("benchmark", "--runs", "1"), ("verify",)):
            self.assertEqual(self.codes(command[0], model, *command[1:], "--device", "emu"),
                             ["nothing_on_device"])
        self.assertEqual(self.codes("run", model, *CPU), [])

    def test_channels_first(self):
        relu = {"builtin_code": 19, "deprecated_builtin_code": 19, "version": 2}
        model = self.model([tensor("x", [1, 3, 64, 64]), tensor("y", [1, 3, 64, 64])], relu)
        self.assertEqual(self.codes("inspect", model, *CPU), ["input_channels"])


class LabelsInTheModel(CommandTest):
    def test_are_used(self):
        """Google's own models bring theirs along."""
        for model in ("mobilenet_v1_0.75_192_quant.tflite", "tf2_mobilenet_v2_1.0_224_ptq.tflite"):
            arguments = ("classify", MODELS / model, IMAGES / "cat_720p.jpg", *CPU, "--top-k", "1")
            image, = self.json(*arguments)["images"]
            with_file, = self.json(*arguments, "--labels", MODELS / "imagenet_labels.txt")["images"]
            self.assertRegex(image["top"][0]["label"], "cat")
            self.assertEqual(image["top"][0]["label"], with_file["top"][0]["label"])


class CompiledForCoral(Pictures):
    def test_a_clear_sentence(self):
        compiled = sorted((MODELS / "edgetpu").glob("*.tflite"))
        self.assertGreater(len(compiled), 0)
        for path in compiled:
            with self.subTest(path.name):
                name = re.sub("(_cocompiled_with_.*)?_edgetpu", "", path.name)
                hint = ("under its name without '_edgetpu'" if "_segment_" in name else
                        f"lay it beside this one as '{name}'")
                self.fail_with(BAD_MODEL, ("inspect", path), path, "compiled for a Coral Edge TPU",
                               "no Coral is used", "--fallback-model", "ATOLL_MODEL_PATH", hint)
                self.assertNotIn("cocompiled", run("inspect", path).stderr.replace(str(path), ""))

    def test_the_model_beside_it(self):
        name = "libredgetpu_bright_16x16"
        data = (MODELS / f"edgetpu/{name}_edgetpu.tflite").read_bytes()
        compiled = self.file(f"{name}_edgetpu.tflite", data)
        self.fail_with(BAD_MODEL, ("run", compiled), f"as '{name}.tflite'")
        original = self.file(f"{name}.tflite", (MODELS / f"{name}.tflite").read_bytes())
        self.assertEqual(self.json("run", compiled)["outputs"],
                         self.json("run", original)["outputs"])


if __name__ == "__main__":
    need(MODELS)
    need(IMAGES)
    need(GOLDEN)
    unittest.main()
