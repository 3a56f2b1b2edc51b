# SPDX-License-Identifier: Apache-2.0
"""Composes scenes: pieces of clothing of Fashion-MNIST on made-up backgrounds, with their boxes.

A scene depends only on the pictures, the seed, its index and the SceneOptions, so training and
evaluation need no stored scenes. Each picture is its own matte (clothes are bright on black), so a
piece can be put on anything, which shows through its holes.
"""

import io
from collections import namedtuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIDE = 28            # of a picture of Fashion-MNIST
EDGE_LEVEL = 24      # a pixel of at least this level is within the box of its picture
OPAQUE_LEVEL = 48    # from this level on a pixel hides what is behind it

SceneOptions = namedtuple("SceneOptions", [
    "width", "height",        # of the scene, in pixels
    "squeeze",                # (low, high): factor on the widths of pieces, for other aspect ratios
    "size",                   # (low, high): side of a picture as a fraction of the scene's height
    "pieces",                 # (least, most) per scene; fewer if there is no room
    "visible",                # of each piece's pixels; one that would hide more is not put there
], defaults=((0.95, 1.05), (0.22, 0.45), (1, 8), 0.60))

# `image` is uint8 [height, width, 3]; `boxes` float32 [n, 4] are top, left, bottom, right as
# fractions of the scene, also of parts that others hide; `classes` are int64 [n].
Scene = namedtuple("Scene", "image boxes classes")


class Composer:
    def __init__(self, images, labels, options, seed, noise=None):
        """images uint8 [n, 28, 28], labels uint8 [n], as fashion_mnist.load returns them; noise
        float32 [at least 4 * height * width * 3] to take parts of, else each scene draws its own,
        which takes longer."""
        self.images, self.labels, self.options, self.seed = images, labels, options, seed
        self.noise = noise

    def compose(self, index):
        rng = np.random.default_rng([self.seed, index])
        o = self.options
        canvas = np.array(_background(rng, o.width, o.height))
        owner = np.full((o.height, o.width), -1, np.int16)  # which piece is seen at a pixel
        areas, boxes, classes = [], [], []
        for _ in range(int(rng.integers(o.pieces[0], o.pieces[1] + 1))):
            piece = int(rng.integers(len(self.images)))
            picture = self.images[piece]
            if rng.random() < 0.5:
                picture = picture[:, ::-1]
            side = o.height * o.size[0] * (o.size[1] / o.size[0]) ** rng.random()
            height = round(side)
            width = max(1, round(side * rng.uniform(*o.squeeze)))
            tight = _tight_box(picture)
            alpha = _resized(np.minimum(picture.astype(np.uint16) * 255 // OPAQUE_LEVEL, 255)
                             .astype(np.uint8), width, height)
            solid = alpha >= 128
            place = self._place(rng, owner, areas, solid, tight)
            tint = _tint(rng)
            if place is None or not solid.any():
                continue
            y, x = place
            levels = _resized(picture, width, height)
            # Only the part within the scene; the tight box always is.
            top, left = max(0, -y), max(0, -x)
            bottom, right = min(height, o.height - y), min(width, o.width - x)
            part = slice(top, bottom), slice(left, right)
            there = slice(y + top, y + bottom), slice(x + left, x + right)
            shade = 40 + levels[part].astype(np.float32) * (215 / 255)
            below = canvas[there]
            weight = alpha[part].astype(np.float32)[..., None] / 255
            canvas[there] = below + weight * (shade[..., None] * tint - below)
            owner[there][solid[part]] = len(areas)
            areas.append(int(solid.sum()))
            boxes.append([(y + tight[0] * height / SIDE) / o.height,
                          (x + tight[1] * width / SIDE) / o.width,
                          (y + tight[2] * height / SIDE) / o.height,
                          (x + tight[3] * width / SIDE) / o.width])
            classes.append(int(self.labels[piece]))
        return Scene(self._as_a_camera_sees(rng, canvas), np.array(boxes, np.float32).reshape(-1, 4),
                     np.array(classes, np.int64))

    def _place(self, rng, owner, areas, solid, tight):
        """(y, x) of a new piece that leaves enough of all others visible, or None."""
        o = self.options
        height, width = solid.shape
        low_y, high_y = -tight[0] * height / SIDE, o.height - tight[2] * height / SIDE
        low_x, high_x = -tight[1] * width / SIDE, o.width - tight[3] * width / SIDE
        visible = np.bincount(owner.ravel() + 1, minlength=len(areas) + 1)[1:]
        for _ in range(4):
            y, x = round(rng.uniform(low_y, high_y)), round(rng.uniform(low_x, high_x))
            top, left = max(0, -y), max(0, -x)
            window = owner[y + top:y + height, x + left:x + width]
            cover = solid[top:top + window.shape[0], left:left + window.shape[1]]
            hidden = np.bincount(window[cover] + 1, minlength=len(areas) + 1)[1:]
            if np.all(visible - hidden >= o.visible * np.array(areas)):
                return y, x
        return None

    def _as_a_camera_sees(self, rng, canvas):
        """Contrast, brightness, a soft lens, noise, and the traces of a JPEG."""
        height = len(canvas)
        if rng.random() < 0.3:
            radius = rng.uniform(0, 0.005) * height
            canvas = np.asarray(Image.fromarray(canvas).filter(ImageFilter.GaussianBlur(radius)))
        levels = canvas * np.float32(rng.uniform(0.7, 1.2)) + np.float32(rng.uniform(-20, 20))
        if rng.random() < 0.6:
            levels += self._noise(rng, levels.shape) * np.float32(rng.uniform(0, 8))
        canvas = np.clip(levels, 0, 255).astype(np.uint8)
        if rng.random() < 0.3:
            data = jpeg(canvas, int(rng.integers(50, 95)))
            canvas = np.asarray(Image.open(io.BytesIO(data)))
        return canvas

    def _noise(self, rng, shape):
        if self.noise is None:
            return rng.standard_normal(shape, np.float32)
        size = int(np.prod(shape))
        first = int(rng.integers(len(self.noise) - size))
        return self.noise[first:first + size].reshape(shape)


def jpeg(image, quality):
    """The bytes of a JPEG of uint8 [height, width, 3]."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _tight_box(picture):
    """(top, left, bottom, right) of the pixels that are not background."""
    bright = picture >= EDGE_LEVEL
    rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
    if not len(rows):
        return 0, 0, SIDE, SIDE
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1


def _resized(picture, width, height):
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR))


def _tint(rng):
    """Factors on red, green and blue; a third of the pieces stay grey."""
    if rng.random() < 0.35:
        return np.full(3, rng.uniform(0.75, 1), np.float32)
    return rng.uniform(0.5, 1, 3).astype(np.float32)


def _background(rng, width, height):
    """A PIL image: flat, a gradient, clouds, waves or a checkerboard; often with shapes on it."""
    low, high = rng.uniform(0, 255, (2, 3))
    kind = rng.integers(5)
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(0, 1, width, dtype=np.float32)[None, :] * (width / height)
    if kind < 2:
        high = low + (high - low) * (kind * 0.8)
        angle = rng.uniform(0, 2 * np.pi)
        level = 0.5 + 0.5 * ((y - 0.5) * np.sin(angle) + (x - 0.5) * np.cos(angle))
    elif kind == 2:
        cells = int(rng.integers(2, 24))
        grid = rng.integers(0, 256, (cells, cells + 1), np.uint8)
        level = np.asarray(Image.fromarray(grid).resize((width, height),
                                                        Image.Resampling.BICUBIC)) / np.float32(255)
        high = low + (high - low) * 0.7
    else:
        angle, other = rng.uniform(0, np.pi), rng.uniform(4, 60)
        wave = np.sin(other * (y * np.sin(angle) + x * np.cos(angle)) + rng.uniform(0, 6))
        if kind == 4:
            wave = wave * np.sin(other * (y * np.cos(angle) - x * np.sin(angle)))
        level = np.clip(wave * rng.uniform(0.5, 8), -1, 1) * 0.5 + 0.5
        high = low + (high - low) * 0.6
    picture = low.astype(np.float32) + level[..., None] * (high - low).astype(np.float32)
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(max(0, int(rng.integers(-3, 6)))):
        _distractor(rng, draw, width, height)
    return image


def _distractor(rng, draw, width, height):
    colour = tuple(int(c) for c in rng.integers(0, 256, 3))
    h, w = rng.uniform(0.04, 0.5, 2) * height
    y, x = rng.uniform(0, height), rng.uniform(0, width)
    kind = rng.integers(4)
    box = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    thickness = max(1, round(height * rng.uniform(0.005, 0.04)))
    if kind == 0:
        draw.rectangle(box, fill=colour)
    elif kind == 1:
        draw.ellipse(box, fill=colour)
    elif kind == 2:
        draw.ellipse(box, outline=colour, width=thickness)
    else:
        corners = rng.uniform(-0.5, 0.5, (int(rng.integers(2, 6)), 2)) * [w, h] + [x, y]
        corners = [tuple(corner) for corner in corners]
        if len(corners) == 2:
            draw.line(corners, fill=colour, width=thickness)
        else:
            draw.polygon(corners, fill=colour)
