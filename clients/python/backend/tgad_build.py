"""Builds the package with nothing but Python itself (PEP 517).

The package is plain Python without dependencies, so a wheel is its files and three texts about them.
The same sources give the same bytes.
"""

import base64
import gzip
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def project():
    """The strings of the table [project]. A TOML reader came with Python 3.11 only."""
    table = (ROOT / "pyproject.toml").read_text("utf-8").split("[project]", 1)[1]
    return dict(re.findall(r'^([a-z-]+) = "(.*)"$', table, re.M))


def name():
    """The name of what is built, without its ending."""
    facts = project()
    return f"{facts['name']}-{facts['version']}"


def metadata():
    """The text that says what the package is."""
    facts = project()
    head = {
        "Metadata-Version": "2.1",
        "Name": facts["name"],
        "Version": facts["version"],
        "Summary": facts["description"],
        "License": facts["license"],
        "Requires-Python": facts["requires-python"],
        "Classifier": "Typing :: Typed",
        "Description-Content-Type": "text/markdown",
    }
    return "".join(f"{key}: {value}\n" for key, value in head.items()) + "\n" + (ROOT / facts["readme"]).read_text("utf-8")


def sources():
    """The files of the package, in order."""
    return sorted(path for path in SOURCE.rglob("*") if path.suffix == ".py" or path.name == "py.typed")


def about():
    """The texts about the wheel, but for the list of its files."""
    wheel = "Wheel-Version: 1.0\nGenerator: tgad_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return {"METADATA": metadata(), "WHEEL": wheel}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel and returns its name."""
    info = name() + ".dist-info/"
    files = {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in sources()}
    files.update({info + of: text.encode("utf-8") for of, text in about().items()})
    record = ""
    for of, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")
        record += f"{of},sha256={digest},{len(content)}\n"
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode("utf-8")
    wheel = name() + "-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for of, content in files.items():
            member = zipfile.ZipInfo(of, (1980, 1, 1, 0, 0, 0))
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, content)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    """Writes the archive of the sources and returns its name."""
    files = [ROOT / "pyproject.toml", ROOT / "README.md", pathlib.Path(__file__).resolve(), *sources()]
    contents = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files}
    contents["PKG-INFO"] = metadata().encode("utf-8")
    archive_name = name() + ".tar.gz"
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for of, content in contents.items():
            member = tarfile.TarInfo(f"{name()}/{of}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (pathlib.Path(sdist_directory) / archive_name).write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return archive_name
