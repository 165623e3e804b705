"""Cloud Storage: buckets and objects with versions, checksums and lifecycle rules."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta

from agentgym.office.context import iso
from agentgym.office.gcloud.cloud import (
    REGIONS,
    check_name,
    check_one_of,
    check_range,
    details,
    listing,
    next_page,
    read_token,
)
from agentgym.office.server import Server
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

STORAGE_SCHEMA = """
CREATE TABLE buckets (id INTEGER PRIMARY KEY, name TEXT UNIQUE, location TEXT, created TEXT, versioning BOOL, lifecycle JSON);
CREATE TABLE objects (id INTEGER PRIMARY KEY, bucket TEXT REFERENCES buckets(name), name TEXT, generation INTEGER, created TEXT,
    deleted TEXT, storage_class TEXT, size INTEGER, md5 TEXT, data BLOB, UNIQUE (bucket, name, generation));
CREATE UNIQUE INDEX live_objects ON objects(bucket, name) WHERE deleted IS NULL;
"""

PAGE = 20  # as in the published server
MAX_BYTES = 256 * 2**20  # total, including noncurrent versions

CLASSES = ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE")  # from warmest to coldest
# Three multi-regions, six dual-regions, and all regions.
LOCATIONS = (
    "US",
    "EU",
    "ASIA",
    "NAM4",
    "EUR4",
    "EUR5",
    "EUR7",
    "EUR8",
    "ASIA1",
    *(region.upper() for region in REGIONS),
)
# Omits the data, which is large.
_PLAIN = "id, bucket, name, generation, created, deleted, storage_class, size, md5"
# Cloud Storage reserves names that resemble Google's.
_NAME = r"(?!goog)(?!.*(?:google|g00gle))[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]"
_NAME_RULE = "3 to 63 of a-z, 0-9, _ and -, a letter or digit at both ends, no 'google' in it (dots need a verified domain)"


class Storage:
    """Buckets and objects. Listings are sorted by name, and sizes are in bytes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @tool
    def storage_list_buckets(self) -> str:
        """List all buckets of the project."""
        buckets = self._server.store.find("buckets", order="name")
        return listing("Buckets", [f"{row['name']}: {row['location']}" for row in buckets])

    @tool
    def storage_create_bucket(self, bucket_name: str, location: str = "US") -> str:
        """Create a bucket.

        Args:
            bucket_name: 3 to 63 characters: a-z, 0-9, _ and -.
            location: A region such as europe-west1, or US, EU or ASIA.
        """
        self.add_bucket(bucket_name, location, created=self._server.context.clock.tick())
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
        after = read_token(page_token) if page_token else ("", 0)
        self._bucket(bucket_name)
        live = "" if versions else " AND deleted IS NULL"
        where = f"bucket = ? AND substr(name, 1, length(?)) = ?{live}"
        key = (bucket_name, prefix, prefix)
        # A page starts after a record, so later writes do not shift it.
        count = self._server.store.value(f"SELECT count(*) FROM objects WHERE {where}", *key)
        sql = (
            f"SELECT {_PLAIN} FROM objects WHERE {where} AND (name, generation) > (?, ?) "
            "ORDER BY name, generation LIMIT ?"
        )
        rows = self._server.store.rows(sql, *key, *after, max_results + 1)
        lines = [f"- {_show(row, versions)}" for row in rows[:max_results]]
        if len(rows) > max_results:
            last = rows[max_results - 1]
            lines.append(next_page(last["name"], last["generation"]))
        return "\n".join([f"Objects in bucket {bucket_name} ({count}):", *lines])

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
        data = self._server.context.files.read(source_file_path)
        self._write_object(bucket_name, destination_blob_name, data)
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
        row = self._object(bucket_name, source_blob_name, generation)
        path = self._server.context.files.write(destination_file_path, self._object_data(row))
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
        row = self._object(bucket_name, blob_name, generation)
        is_kept = self._delete_object(
            row, self._server.context.clock.tick(), for_good=generation is not None
        )
        kept = f"; its generation {row['generation']} is noncurrent" if is_kept else ""
        return f"Deleted {blob_name} from bucket {bucket_name}{kept}"

    @tool
    def storage_get_bucket_info(self, bucket_name: str) -> str:
        """Get location, storage class, versioning and lifecycle rules of a bucket.

        Args:
            bucket_name: The bucket.
        """
        row = self._bucket(bucket_name)
        text = details(
            f"Bucket {bucket_name}",
            ("Location", row["location"]),
            ("Storage Class", CLASSES[0]),
            ("Created", row["created"]),
            ("Versioning", "Enabled" if row["versioning"] else "Disabled"),
            ("Labels", ""),
            ("Lifecycle Rules", str(len(row["lifecycle"]))),
        )
        return "\n".join([text, *(f"- {_rule(rule)}" for rule in row["lifecycle"])])

    @tool
    def storage_copy_object(
        self, source_bucket: str, source_blob: str, dest_bucket: str, dest_blob: str
    ) -> str:
        """Copy an object, replacing an existing one at the destination.

        Args:
            source_bucket: The bucket of the object.
            source_blob: The object.
            dest_bucket: The bucket of the copy.
            dest_blob: The name of the copy.
        """
        row = self._object(source_bucket, source_blob)
        self._write_object(dest_bucket, dest_blob, self._object_data(row))
        return f"Copied {source_bucket}/{source_blob} to {dest_bucket}/{dest_blob}"

    @tool
    def storage_move_object(
        self, source_bucket: str, source_blob: str, dest_bucket: str, dest_blob: str
    ) -> str:
        """Move an object to another bucket or name, replacing an existing one.

        Args:
            source_bucket: The bucket of the object.
            source_blob: The object.
            dest_bucket: The bucket to move it to.
            dest_blob: Its new name.
        """
        row = self._object(source_bucket, source_blob)
        if (source_bucket, source_blob) == (dest_bucket, dest_blob):
            raise ToolError("invalid argument: source and destination are the same object")
        with self._server.store.change():
            self._write_object(dest_bucket, dest_blob, self._object_data(row))
            self._delete_object(row, self._server.context.clock.now())
        return f"Moved {source_bucket}/{source_blob} to {dest_bucket}/{dest_blob}"

    @tool
    def storage_enable_versioning(self, bucket_name: str, enabled: bool = True) -> str:
        """Enable or disable versioning of a bucket, which keeps replaced and deleted objects as noncurrent versions.

        Args:
            bucket_name: The bucket.
            enabled: False to disable it; existing versions stay.
        """
        self._set_bucket(bucket_name, versioning=enabled)
        state = "enabled" if enabled else "disabled"
        return f"Versioning {state} for bucket {bucket_name}"

    @tool
    def storage_get_bucket_size(self, bucket_name: str) -> str:
        """Count the objects and bytes of a bucket; noncurrent versions are counted separately.

        Args:
            bucket_name: The bucket.
        """
        self._bucket(bucket_name)
        sql = "SELECT count(*) AS objects, coalesce(sum(size), 0) AS bytes FROM objects WHERE bucket = ? AND deleted IS {} NULL"
        [live] = self._server.store.rows(sql.format(""), bucket_name)
        [old] = self._server.store.rows(sql.format("NOT"), bucket_name)
        text = details(
            f"Size of bucket {bucket_name}",
            ("Objects", str(live["objects"])),
            ("Bytes", str(live["bytes"])),
            ("MB", f"{live['bytes'] / 2**20:.2f}"),
            ("GB", f"{live['bytes'] / 2**30:.2f}"),
        )
        if not old["objects"]:
            return text
        return f"{text}\nNoncurrent: {old['objects']} objects, {old['bytes']} bytes"

    @tool
    def storage_set_bucket_lifecycle(
        self,
        bucket_name: str,
        age_days: int = 30,
        action: str = "Delete",
        storage_class: str = "NEARLINE",
    ) -> str:
        """Set the lifecycle rule of a bucket, replacing the current one.

        Args:
            bucket_name: The bucket.
            age_days: Age of an object, in days, at which the action is taken.
            action: Delete or SetStorageClass.
            storage_class: New class for SetStorageClass: NEARLINE, COLDLINE or ARCHIVE; objects only get colder.
        """
        check_range("age_days", age_days, 0, 36_500)
        does: Row = {"type": check_one_of("action", action, ("Delete", "SetStorageClass"))}
        if does["type"] == "SetStorageClass":
            does["storageClass"] = check_one_of("storage_class", storage_class, CLASSES[1:])
        rule = {"action": does, "condition": {"age": age_days}}
        self._set_bucket(bucket_name, lifecycle=[rule])
        return f"Lifecycle rule set for bucket {bucket_name}: {_rule(rule)}"

    # For tasks.

    def add_bucket(
        self,
        name: str,
        location: str = "US",
        *,
        versioning: bool = False,
        created: datetime | None = None,
    ) -> None:
        """Add a bucket; the creation time defaults to now."""
        check_name("bucket", name, _NAME, _NAME_RULE)
        place = check_one_of("location", location, LOCATIONS)
        if self._server.store.value("SELECT 1 FROM buckets WHERE name = ?", name):
            raise ToolError(f"conflict: bucket {echo(name)} already exists")
        self._server.store.insert(
            "buckets",
            name=name,
            location=place,
            created=iso(created or self._server.context.clock.now()),
            versioning=versioning,
            lifecycle=[],
        )

    def buckets(self) -> list[str]:
        """Return all bucket names, sorted."""
        return [row["name"] for row in self._server.store.find("buckets", order="name")]

    def put_object(
        self,
        bucket: str,
        name: str,
        data: bytes | str,
        created: datetime | None = None,
    ) -> None:
        """Add an object; the creation time defaults to now."""
        self._put_object(
            self._bucket(bucket),
            _check_object_name(name),
            data.encode() if isinstance(data, str) else data,
            created or self._server.context.clock.now(),
        )

    def objects(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the sorted names of a bucket's live objects."""
        self._bucket(bucket)
        rows = self._server.store.rows(
            "SELECT name FROM objects WHERE bucket = ? AND deleted IS NULL ORDER BY name", bucket
        )
        return [row["name"] for row in rows if row["name"].startswith(prefix)]

    def read_object(self, bucket: str, name: str, generation: int | None = None) -> bytes:
        """Return the data of an object or one of its versions."""
        return self._object_data(self._object(bucket, name, generation))

    # Shared by the tools and other services.

    def write_gs(self, uri: str, data: bytes) -> None:
        """Write the object gs://bucket/name at the current time."""
        self._write_object(*_parts(uri), data)

    def room(self) -> int:
        """Return the bytes left for objects."""
        return MAX_BYTES - int(self._server.store.value("SELECT sum(size) FROM objects") or 0)

    def _bucket(self, name: str) -> Row:
        """Return a bucket after applying its lifecycle rules."""
        bucket = self._server.store.row("SELECT * FROM buckets WHERE name = ?", name)
        if bucket is None:
            raise ToolError(f"not found: there is no bucket {echo(name)}")
        for rule in bucket["lifecycle"]:
            self._apply_rule(bucket, rule)
        return bucket

    def _apply_rule(self, bucket: Row, rule: Row) -> None:
        """Rules run daily, so a version retired by one run is deleted by the next."""
        now = self._server.context.clock.now()
        old = (bucket["name"], iso(now - timedelta(days=rule["condition"]["age"])))
        if rule["action"]["type"] == "SetStorageClass":
            colder = CLASSES.index(rule["action"]["storageClass"])
            for warmer in CLASSES[:colder]:
                for row in self._server.store.rows(
                    "SELECT id FROM objects WHERE bucket = ? AND created <= ? AND storage_class = ?",
                    *old,
                    warmer,
                ):
                    self._server.store.update("objects", row["id"], storage_class=CLASSES[colder])
            return
        sql = f"SELECT {_PLAIN} FROM objects WHERE bucket = ? AND created <= ? AND (deleted IS NULL OR deleted <= ?)"
        for row in self._server.store.rows(sql, *old, iso(now - timedelta(days=1))):
            self._delete_object(row, now)

    def _set_bucket(self, name: str, **changes: object) -> None:
        self._server.store.update("buckets", self._bucket(name)["id"], **changes)
        self._server.context.clock.tick()
        self._bucket(name)

    def _object(self, bucket: str, name: str, generation: int | None = None) -> Row:
        self._bucket(bucket)
        text = None if generation is None else str(generation)
        which = "CASE WHEN ? IS NULL THEN deleted IS NULL ELSE CAST(generation AS TEXT) = ? END"
        row = self._server.store.row(
            f"SELECT {_PLAIN} FROM objects WHERE bucket = ? AND name = ? AND {which}",
            bucket,
            name,
            text,
            text,
        )
        if row is None:
            version = "" if generation is None else f" with generation {generation}"
            raise ToolError(
                f"not found: there is no object {echo(name)}{version} in bucket {echo(bucket)}"
            )
        return row

    def _object_data(self, row: Row) -> bytes:
        return bytes(self._server.store.value("SELECT data FROM objects WHERE id = ?", row["id"]))

    def _write_object(self, bucket: str, name: str, data: bytes) -> None:
        into = self._bucket(bucket)
        _check_object_name(name)
        if len(data) > self.room():
            raise ToolError(
                f"limit exceeded: the objects of a project have at most {MAX_BYTES} bytes together"
            )
        self._put_object(into, name, data, self._server.context.clock.tick())
        self._bucket(bucket)

    def _put_object(self, bucket: Row, name: str, data: bytes, when: datetime) -> None:
        store, key = self._server.store, (bucket["name"], name)
        last = store.value(
            "SELECT max(generation) FROM objects WHERE bucket = ? AND name = ?", *key
        )
        live = store.row(
            f"SELECT {_PLAIN} FROM objects WHERE bucket = ? AND name = ? AND deleted IS NULL", *key
        )
        with store.change():
            if live is not None:
                self._delete_object(live, when)
            # Generations are microseconds, as in Cloud Storage, and also grow within a second.
            store.insert(
                "objects", bucket=bucket["name"], name=name, generation=max((last or 0) + 1, int(when.timestamp()) * 1_000_000),
                created=iso(when), deleted=None, storage_class=CLASSES[0], size=len(data), md5=hashlib.md5(data).hexdigest(),
                data=data,
            )  # fmt: skip

    def _delete_object(self, row: Row, when: datetime, for_good: bool = False) -> bool:
        """Delete an object and return whether it stays as a noncurrent version."""
        keep = not for_good and row["deleted"] is None
        if keep and self._server.store.value(
            "SELECT versioning FROM buckets WHERE name = ?", row["bucket"]
        ):
            self._server.store.update("objects", row["id"], deleted=iso(when))
            return True
        self._server.store.delete("objects", id=row["id"])
        return False


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


def _check_object_name(name: str) -> str:
    if not 1 <= len(name.encode()) <= 1024 or name in (".", "..") or re.search(r"[\r\n]", name):
        raise ToolError(
            f"invalid argument: {echo(name)} is not a valid object name: 1 to 1024 bytes without line breaks, not . or .."
        )
    return name


def _rule(rule: Row) -> str:
    kind = " ".join(filter(None, [rule["action"]["type"], rule["action"].get("storageClass")]))
    return f"{kind} after {rule['condition']['age']} days"


def _show(row: Row, with_generation: bool) -> str:
    notes = []
    if row["storage_class"] != CLASSES[0]:
        notes.append(row["storage_class"])
    if with_generation:
        notes.append(f"generation {row['generation']}")
    if row["deleted"]:
        notes.append(f"noncurrent since {row['deleted']}")
    note = f" ({', '.join(notes)})" if notes else ""
    return f"{row['name']}: {row['size']} bytes{note}"
