"""Cloud Storage: buckets and objects with checksums."""

from __future__ import annotations

import hashlib
import re

from agentgym.office.gcloud.cloud import check_name, check_range, listing
from agentgym.office.server_state import ServerState
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

STORAGE_SCHEMA = """
CREATE TABLE buckets (id INTEGER PRIMARY KEY, name TEXT UNIQUE, location TEXT, created TEXT);
CREATE TABLE objects (id INTEGER PRIMARY KEY, bucket TEXT REFERENCES buckets(name), name TEXT, created TEXT,
    size INTEGER, md5 TEXT, data BLOB, UNIQUE (bucket, name));
"""

PAGE = 20  # as published

# Names of multi-regions, dual-regions and regions.
_LOCATION = r"US|EU|ASIA|NAM4|EUR[4-8]|ASIA1|[A-Z]+-[A-Z]+[0-9]{1,2}"
# All columns except the data, which may be large.
_PLAIN = "id, bucket, name, created, size, md5"
# Cloud Storage rejects bucket names that resemble "google".
_NAME = r"(?!goog)(?!.*(?:google|g00gle))[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]"
_NAME_RULE = "3 to 63 of a-z, 0-9, _ and -, a letter or digit at both ends, no 'google' in it (dots need a verified domain)"


class Storage(ServerState):
    """Buckets and objects. Listings are sorted by name, and sizes are in bytes."""

    @tool
    def storage_list_buckets(self) -> str:
        """List all buckets of the project."""
        buckets = self.store.find("buckets", order="name")
        return listing("Buckets", [f"{row['name']}: {row['location']}" for row in buckets])

    @tool
    def storage_create_bucket(self, bucket_name: str, location: str = "US") -> str:
        """Create a bucket.

        Args:
            bucket_name: 3 to 63 characters: a-z, 0-9, _ and -.
            location: A region such as europe-west1, or US, EU or ASIA.
        """
        self.tick()
        self.add_bucket(bucket_name, location)
        return f"Created bucket {bucket_name} in {self._bucket(bucket_name)['location']}"

    @tool
    def storage_list_objects(
        self,
        bucket_name: str,
        prefix: str = "",
        versions: bool = False,
        max_results: int = PAGE,
        page_token: str = "",
    ) -> str:
        """List the objects of a bucket in the order of their names.

        Args:
            bucket_name: The bucket.
            prefix: Prefix of the names.
            versions: Include noncurrent versions, with generations.
            max_results: Objects per page, at most 1000.
            page_token: Token of the next page, from the previous answer.
        """
        check_range("max_results", max_results, 1, 1000)
        if page_token:
            raise ToolError("not supported: page_token; raise max_results, or give a prefix")
        _refuse_versions(versions)
        names = self.objects(bucket_name, prefix)
        lines = [f"Objects in bucket {bucket_name} ({len(names)}):"]
        for name in names[:max_results]:
            lines.append(f"- {name}: {self._object(bucket_name, name)['size']} bytes")
        if len(names) > max_results:
            lines.append(f"... ({len(names) - max_results} more)")
        return "\n".join(lines)

    @tool
    def storage_upload_file(
        self, bucket_name: str, source_file_path: str, destination_blob_name: str
    ) -> str:
        """Upload a workspace file as an object, replacing an existing object.

        Args:
            bucket_name: The bucket.
            source_file_path: The file.
            destination_blob_name: The name of the object.
        """
        data = self.context.files.read(source_file_path)
        self.tick()
        self.put_object(bucket_name, destination_blob_name, data)
        return f"Uploaded {source_file_path} to {bucket_name}/{destination_blob_name}"

    @tool
    def storage_download_file(
        self,
        bucket_name: str,
        source_blob_name: str,
        destination_file_path: str,
        generation: int | None = None,
    ) -> str:
        """Download an object to a workspace file, overwriting an existing file.

        Args:
            bucket_name: The bucket.
            source_blob_name: The object.
            destination_file_path: The file to write.
            generation: The version of the object; the live one by default.
        """
        _refuse_versions(generation)
        data = self.read_object(bucket_name, source_blob_name)
        path = self.context.files.write(destination_file_path, data)
        return f"Downloaded {bucket_name}/{source_blob_name} to {path}"

    @tool
    def storage_delete_object(
        self, bucket_name: str, blob_name: str, generation: int | None = None
    ) -> str:
        """Delete an object. With versioning it stays as a noncurrent version unless its generation is given.

        Args:
            bucket_name: The bucket.
            blob_name: The object.
            generation: The version to delete permanently.
        """
        _refuse_versions(generation)
        row = self._object(bucket_name, blob_name)
        self.store.delete("objects", id=row["id"])
        self.tick()
        return f"Deleted {blob_name} from bucket {bucket_name}"

    def add_bucket(self, name: str, location: str = "US") -> None:
        """Add a bucket."""
        check_name("bucket", name, _NAME, _NAME_RULE)
        place = location.upper()
        if not re.fullmatch(_LOCATION, place):
            raise ToolError(
                f"invalid argument: location must be US, EU, ASIA or a region such as europe-west1, "
                f"got {echo(location)}"
            )
        if self.store.value("SELECT 1 FROM buckets WHERE name = ?", name):
            raise ToolError(f"conflict: bucket {echo(name)} already exists")
        self.store.insert("buckets", name=name, location=place, created=self.now())

    def buckets(self) -> list[str]:
        """Return all bucket names, sorted."""
        return [row["name"] for row in self.store.find("buckets", order="name")]

    def put_object(self, bucket: str, name: str, data: bytes | str) -> None:
        """Add or replace an object."""
        self._bucket(bucket)
        _check_object_name(name)
        if isinstance(data, str):
            data = data.encode()
        key = {"bucket": bucket, "name": name}
        with self.store.change():
            self.store.delete("objects", **key)
            self.store.insert(
                "objects",
                **key,
                created=self.now(),
                size=len(data),
                md5=hashlib.md5(data).hexdigest(),
                data=data,
            )

    def objects(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the sorted names of a bucket's objects."""
        self._bucket(bucket)
        sql = "SELECT name FROM objects WHERE bucket = ? ORDER BY name"
        names = [row["name"] for row in self.store.rows(sql, bucket)]
        return [name for name in names if name.startswith(prefix)]

    def read_object(self, bucket: str, name: str) -> bytes:
        """Return the data of an object."""
        row = self._object(bucket, name)
        data: bytes = self.store.value("SELECT data FROM objects WHERE id = ?", row["id"])
        return data

    def _bucket(self, name: str) -> Row:
        bucket = self.store.row("SELECT * FROM buckets WHERE name = ?", name)
        if bucket is None:
            raise ToolError(f"not found: there is no bucket {echo(name)}")
        return bucket

    def _object(self, bucket: str, name: str) -> Row:
        self._bucket(bucket)
        sql = f"SELECT {_PLAIN} FROM objects WHERE bucket = ? AND name = ?"
        row = self.store.row(sql, bucket, name)
        if row is None:
            raise ToolError(f"not found: there is no object {echo(name)} in bucket {echo(bucket)}")
        return row


def _check_object_name(name: str) -> None:
    size = len(name.encode())
    if not 1 <= size <= 1024 or name in (".", "..") or re.search(r"[\r\n]", name):
        raise ToolError(
            f"invalid argument: {echo(name)} is not a valid object name; it must have 1 to 1024 "
            "bytes without line breaks, and must not be . or .."
        )


def _refuse_versions(wanted: int | None) -> None:
    if wanted:
        raise ToolError(
            "permission denied: object versions are not enabled for this account; name only the "
            "object"
        )
