# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the folder that this file lies in: of METADATA and the packages beside it. What
pip asks (PEP 517), so that `pip install FOLDER` needs no other tool; or

    python3 atoll_wheel.py FOLDER OUTPUT_FOLDER

A distribution that stands in for others (Provides-Dist) is not put in their place. Its package lies
in a folder of Atoll's, which a .pth file adds to the end of Python's path: nothing of the original
is overwritten, and where that is there, it comes first. pip refuses to install the folder then.
"""
import base64
import email.parser
import hashlib
import pathlib
import re
import site
import sys
import sysconfig
import zipfile

STAND_INS = "atoll_stand_ins"
# What lies in lib, above lib/atoll/python/atoll/atoll, unless it lies beside the extension.
LIBRARIES = ("libatoll.so.*", "libatoll-quantize.so.*")
FOUR_UP = 4


def metadata_of(folder):
    text = (folder / "METADATA").read_text(encoding="utf-8")
    return text, email.parser.Parser().parsestr(text)


def packages_in(folder):
    return sorted(init.parent for init in folder.glob("*/__init__.py"))


def refuse_beside_originals(folder, originals, packages):
    places = {*site.getsitepackages(), site.getusersitepackages(),
              *(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib"))}
    found = []
    for place in map(pathlib.Path, sorted(places)):
        found += [place / package for package in packages if (place / package).is_dir()]
        for info in [*place.glob("*.dist-info"), *place.glob("*.egg-info")]:
            if normalized(info.name.split("-")[0]) in map(normalized, originals):
                found.append(info)
    if found:
        sys.exit(f"{found[0]} is there: Atoll's stand-in is not installed beside the original. Remove "
                 f"that first (pip uninstall {originals[0]}), or, for one program, put {folder} into "
                 "PYTHONPATH.")


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def contents(folder, packages, is_stand_in):
    """(path in the wheel, bytes) of everything but the wheel's own description."""
    for package in packages:
        prefix = f"{STAND_INS}/{package.name}/" if is_stand_in else ""
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield prefix + path.relative_to(folder).as_posix(), path.read_bytes()
        for names in LIBRARIES if next(package.glob("*.so"), None) else ():
            if not next(package.glob(names), None):
                library = shortest(package.parents[FOUR_UP - 1].glob(names))
                yield f"{package.name}/{library.name}", library.read_bytes()
    if is_stand_in:
        yield (f"atoll_{packages[0].name}.pth",
               "".join(f"{STAND_INS}/{package.name}\n" for package in packages).encode())


def shortest(paths):
    """The name that programs are linked to: libatoll.so.0."""
    return min(paths, key=lambda path: len(path.name))


def write_wheel(folder, output):
    """Returns the name of the file."""
    metadata, fields = metadata_of(folder)
    name = f"{normalized(fields['Name']).replace('-', '_')}-{fields['Version']}"
    packages = packages_in(folder)
    tag = "py3-none-any"
    if next(folder.glob("*/*.abi3.so"), None):
        tag = "cp39-abi3-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    files = [*contents(folder, packages, "Provides-Dist" in fields),
             (f"{name}.dist-info/METADATA", metadata.encode()),
             (f"{name}.dist-info/WHEEL",
              (f"Wheel-Version: 1.0\nGenerator: atoll\nRoot-Is-Purelib: "
               f"{str(tag.endswith('any')).lower()}\nTag: {tag}\n").encode())]
    record = ""
    for path, data in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files.append((f"{name}.dist-info/RECORD", f"{record}{name}.dist-info/RECORD,,\n".encode()))
    file_name = f"{name}-{tag}.whl"
    output.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(output / file_name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files:
            # The same bytes whenever it is made.
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if ".so" in path else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return file_name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    del config_settings, metadata_directory  # pip's, for others
    folder = pathlib.Path(__file__).resolve().parent
    _, fields = metadata_of(folder)
    originals = fields.get_all("Provides-Dist", [])
    if originals:
        refuse_beside_originals(folder, originals,
                                [package.name for package in packages_in(folder)])
    return write_wheel(folder, pathlib.Path(wheel_directory))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(write_wheel(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])))


if __name__ == "__main__":
    main()
