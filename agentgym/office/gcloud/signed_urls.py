"""Signed URLs of Cloud Storage: version 4 of its signing process with an HMAC key."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from agentgym.text.tools import ToolError, echo

HOST = "storage.googleapis.com"
_ALGORITHM = "GOOG4-HMAC-SHA256"


def sign_url(key: str, method: str, bucket: str, name: str, now: datetime, seconds: int) -> str:
    """Return a URL to use an object by until `seconds` after `now`, signed with a secret key."""
    date = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{date[:8]}/auto/storage/goog4_request"
    query = {
        "X-Goog-Algorithm": _ALGORITHM,
        "X-Goog-Credential": f"GOOG1E{hashlib.sha256(key.encode()).hexdigest()[:55].upper()}/{scope}",
        "X-Goog-Date": date,
        "X-Goog-Expires": str(seconds),
        "X-Goog-SignedHeaders": "host",
    }
    path = f"/{bucket}/{quote(name)}"
    query_text = "&".join(f"{part}={quote(value, safe='')}" for part, value in query.items())
    request = f"{method}\n{path}\n{query_text}\nhost:{HOST}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"{_ALGORITHM}\n{date}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = f"GOOG4{key}".encode()
    for step in scope.split("/"):
        secret = hmac.digest(secret, step.encode(), "sha256")
    return f"https://{HOST}{path}?{query_text}&X-Goog-Signature={hmac.digest(secret, text.encode(), 'sha256').hex()}"


def read_url(key: str | None, method: str, url: str, now: datetime) -> tuple[str, str]:
    """Return the bucket and the name of the object of a signed URL.

    Raises:
        ToolError: It is not signed with the key for the method, or its time is over.
    """
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        date = datetime.strptime(query["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        seconds = int(query["X-Goog-Expires"])
    except (KeyError, ValueError):
        raise ToolError(f"invalid argument: {echo(url)} is not a signed URL") from None
    bucket, _, name = parts.path.removeprefix("/").partition("/")
    if key is None or not hmac.compare_digest(
        sign_url(key, method, bucket, unquote(name), date, seconds).encode(), url.encode()
    ):
        raise ToolError("permission denied: the signature does not match")
    if now >= date + timedelta(seconds=seconds):
        raise ToolError("permission denied: the signed URL has expired")
    return bucket, unquote(name)
