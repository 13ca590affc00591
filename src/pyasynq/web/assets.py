"""Static files (CSS, JavaScript modules), read once; their URLs have a content hash (cache busting)."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

_FOLDER: Final = Path(__file__).parent / "static"
_STYLE: Final = "dashboard.css"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOREVER: Final = "public, max-age=31536000, immutable"
_VERSION_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file: its content, its content compressed with gzip, and its media type."""

    content: bytes
    compressed: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Assets:
    """All static files, and their common version."""

    version: str
    """Version in the path of each asset; one for all, because modules import each other by relative paths."""
    files: dict[str, Asset]


@cache
def load_assets() -> Assets:
    """Return the static files of the package; the CSS files are joined in the order of their names."""
    contents = {path.name: path.read_bytes() for path in sorted(_FOLDER.glob("*.js"))}
    contents[_STYLE] = b"".join(path.read_bytes() for path in sorted((_FOLDER / "css").glob("*.css")))
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name}:{len(content)}:".encode() + content)
    files = {
        name: Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[Path(name).suffix])
        for name, content in contents.items()
    }
    return Assets(digest.hexdigest()[:_VERSION_DIGITS], files)


async def serve_asset(request: Request) -> Response:
    """Send a static file. For the URL of an outdated version, send the current file with `no-cache`."""
    assets = load_assets()
    asset = assets.files.get(request.path_params["name"])
    if asset is None:
        return Response("There is no such file.\n", 404, media_type="text/plain")
    is_current = request.path_params["version"] == assets.version
    headers = {"Cache-Control": _FOREVER if is_current else "no-cache", "Vary": "Accept-Encoding"}
    content = asset.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        content = asset.compressed
    return Response(content, headers=headers, media_type=asset.media_type)
