"""Build a release into dist/: make dist

It consists of the wheel, the sdist, a CycloneDX SBOM and their SHA256SUMS. The SBOM lists what the image runs
with: the Python packages of image-hashed.txt and the jars of jars.sha256, each with its digests.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
JARS = PROJECT / "handlers/spark/runtime/jars.sha256"


def main() -> None:
    sys.path.insert(0, str(PROJECT))
    from worker import __version__  # noqa: PLC0415 (from this folder, whichever version is installed)

    folder = PROJECT / "dist"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    built = [*build(PROJECT, folder), folder / f"binlane-{__version__}.cdx.json"]
    built[-1].write_text(json.dumps(valid(sbom(__version__)), indent=2, sort_keys=True) + "\n")
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(built)]
    (folder / "SHA256SUMS").write_text("".join(sums))
    sys.stdout.writelines(f"dist/{line.split()[1]}\n" for line in sums)


def build(project: Path, folder: Path) -> list[Path]:
    """Build the wheel and the sdist."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "sdist", "-t", "wheel"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]


def sbom(version: str) -> dict[str, Any]:
    """Return cyclonedx-py's SBOM of the Python packages, with the jars, and with binlane as its subject."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
        command += ["--spec-version", "1.6", "--output-file", f"{folder}/bom.json", "image-hashed.txt"]
        subprocess.run(command, cwd=PROJECT, check=True)
        bom: dict[str, Any] = json.loads(Path(folder, "bom.json").read_text())
    for each in bom["components"]:
        each.pop("description", None)  # repeats the line of the list
        each["bom-ref"] = each["purl"]
    bom["components"] += [jar(*line.split()) for line in JARS.read_text().splitlines()]
    purl = f"pkg:pypi/binlane@{version}"
    bom["metadata"]["component"] = {
        "bom-ref": purl,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "name": "binlane",
        "purl": purl,
        "type": "application",
        "version": version,
    }
    refs = sorted(each["bom-ref"] for each in bom["components"])
    bom["dependencies"] = [{"ref": purl, "dependsOn": refs}, *({"ref": each} for each in refs)]
    return bom


def jar(digest: str, name: str) -> dict[str, Any]:
    """Return the component of a jar, such as delta-storage-4.3.1.jar."""
    found = re.fullmatch(r"(.+?)-(\d[\w.\-]*)\.jar", name)
    told = {"name": found[1], "version": found[2]} if found else {"name": name}
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"bom-ref": f"jar:{name}", "hashes": hashes, "type": "library", **told}


def valid(bom: dict[str, Any]) -> dict[str, Any]:
    """Return the SBOM. Raises SystemExit if CycloneDX's own schema rejects it."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 (only installed for make dist)
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom))
    if fault is not None:
        raise SystemExit(f"the SBOM is not valid: {fault}")
    return bom


if __name__ == "__main__":
    main()
