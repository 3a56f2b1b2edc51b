# SPDX-License-Identifier: Apache-2.0
"""The outputs of a detector."""
import collections
from typing import Any, Callable, List, Tuple

from pycoral.adapters import common

Object = collections.namedtuple("Object", ["id", "score", "bbox"])
Object.__doc__ = "A class, its score, and the box around it."


class BBox(collections.namedtuple("BBox", ["xmin", "ymin", "xmax", "ymax"])):
    """A rectangle; its right and lower edges do not belong to it."""
    __slots__ = ()

    @property
    def width(self) -> float:
        return self.xmax - self.xmin

    @property
    def height(self) -> float:
        return self.ymax - self.ymin

    @property
    def area(self) -> float:
        return self.width * self.height

    @property
    def valid(self) -> bool:
        """Whether neither size is negative."""
        return self.width >= 0 and self.height >= 0

    def scale(self, sx: float, sy: float) -> "BBox":
        return BBox(sx * self.xmin, sy * self.ymin, sx * self.xmax, sy * self.ymax)

    def translate(self, dx: float, dy: float) -> "BBox":
        return BBox(dx + self.xmin, dy + self.ymin, dx + self.xmax, dy + self.ymax)

    def map(self, f: Callable[[float], Any]) -> "BBox":
        """The box of f of each number."""
        return BBox(*(f(number) for number in self))

    @staticmethod
    def intersect(a: "BBox", b: "BBox") -> "BBox":
        """What is in both; not valid if nothing is."""
        return BBox(max(a.xmin, b.xmin), max(a.ymin, b.ymin), min(a.xmax, b.xmax),
                    min(a.ymax, b.ymax))

    @staticmethod
    def union(a: "BBox", b: "BBox") -> "BBox":
        """The smallest box around both."""
        return BBox(min(a.xmin, b.xmin), min(a.ymin, b.ymin), max(a.xmax, b.xmax),
                    max(a.ymax, b.ymax))

    @staticmethod
    def iou(a: "BBox", b: "BBox") -> float:
        """The area of what is in both, as a part of that of what is in either."""
        both = BBox.intersect(a, b)
        if not both.valid:
            return 0.0
        either = a.area + b.area - both.area
        return both.area / either if either else 0.0


def get_objects(interpreter: Any, score_threshold: float = -float("inf"),
                image_scale: Tuple[float, float] = (1.0, 1.0)) -> List[Object]:
    """What was found with scores that reach the threshold. Boxes are in pixels of the picture that
    is `image_scale` times as large when it is the input."""
    boxes, ids, scores, count = _outputs(interpreter)
    width, height = common.input_size(interpreter)
    sx, sy = width / image_scale[0], height / image_scale[1]
    found = []
    for i in range(min(count, len(scores))):
        if scores[i] >= score_threshold:
            ymin, xmin, ymax, xmax = boxes[i]
            found.append(Object(id=int(ids[i]), score=float(scores[i]),
                                bbox=BBox(xmin, ymin, xmax, ymax).scale(sx, sy).map(int)))
    return found


def _outputs(interpreter: Any) -> Tuple[Any, Any, Any, int]:
    """Boxes, ids, scores, count, which models have in different orders."""
    signatures = interpreter._get_full_signature_list()
    if len(signatures) > 1:
        raise ValueError(f"a detector with {len(signatures)} signatures; it may have one")
    names = next(iter(signatures.values()))["outputs"] if signatures else {}
    by_name = [f"output_{i}" for i in range(4)]
    if all(name in names for name in by_name):
        count, scores, ids, boxes = (interpreter.get_tensor(names[name]) for name in by_name)
    else:
        outputs = [interpreter.get_tensor(details["index"])
                   for details in interpreter.get_output_details()[:4]]
        if outputs[3].size == 1:
            boxes, ids, scores, count = outputs
        else:
            scores, boxes, count, ids = outputs
    return boxes[0], ids[0], scores[0], int(count.reshape(-1)[0])
