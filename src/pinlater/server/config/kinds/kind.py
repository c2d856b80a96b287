"""What a kind of store declares of itself. Imports neither a driver nor a store: those are imported when a shard is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pinlater.server.config.configured_shard import ConfiguredShard
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import Shard, SharedShard
    from pinlater.server.storage.offline import LiveJobs, Look, Migrated


class FileTools(Protocol):
    """Work on the file of a store without a server. All raise `Unavailable`."""

    def migrate(self, path: Path) -> Migrated:
        """Takes the file to this program's schema, making it if there is none."""

    def backup(self, path: Path, target: Path) -> int:
        """Copies the file, also while a server uses it; the size of the copy in bytes. Raises OSError, too."""


class EmbeddedKind(Protocol):
    """A store inside the server's process."""

    @property
    def name(self) -> str:
        """Stands before the colon of a location, and names the table of its settings, if it has one."""

    @property
    def form(self) -> str:
        """How its location is written."""

    @property
    def warning(self) -> str:
        """What an operator should know before using it; empty for nothing."""

    @property
    def tools(self) -> FileTools | None:
        """What commands do with its file; None if it has none."""

    def locate(self, rest: str, base: Path | None) -> Path | None:
        """The file that a location names by `rest`, what is behind its colon. Raises ValueError in words."""

    def make(self, path: Path | None, settings: Settings) -> Shard:
        """The shard, not opened yet."""


class ShardEntries(Protocol):
    """What a kind knows of its shard file. Entries are its own values, compared and handed back."""

    @property
    def password_file(self) -> Path | None:
        """Where the settings say that the password is."""

    def parse(self, content: bytes) -> Sequence[Any]:
        """The entries. Raises ValueError that names the entry."""

    def of_url(self, url: Any, from_file: str | None) -> ConfiguredShard:
        """The one shard of a URL."""

    def of_entries(self, entries: Sequence[Any], from_file: str | None) -> Iterable[ConfiguredShard]:
        """The shards of a file's entries."""


class Driver(NamedTuple):
    """The library that a store needs. The first of its `modules` is the one that must be there."""

    modules: Sequence[str]
    title: str


class ShardedKind(Protocol):
    """A store in databases that several servers use. What takes a place or a URL takes only those of this kind."""

    @property
    def name(self) -> str:
        """Stands before the colon of a location; names the table of its settings, and the extra that installs its driver."""

    @property
    def title(self) -> str:
        """Its name in sentences."""

    @property
    def url_form(self) -> str:
        """How the URL of a single shard is written."""

    @property
    def schemes(self) -> Sequence[str]:
        """What a URL may begin with."""

    @property
    def nicknames(self) -> Mapping[str, str]:
        """Words that are taken for its name, and what to say of them."""

    @property
    def driver(self) -> Driver: ...

    def parse_url(self, text: str) -> object:
        """A value whose text has no password. Raises ValueError in words, without any password."""

    def holds(self, document: object) -> bool:
        """Whether the JSON of a shard file can be of this kind and of no other."""

    def entries(self, settings: Settings) -> ShardEntries:
        """How to read its shard file."""

    def has_password(self, path: Path, settings: Settings) -> bool:
        """Whether the shard file holds one. Raises FileBroken."""

    def wants_tls(self, place: ConfiguredShard, settings: Settings) -> bool:
        """Whether connections to the shard are encrypted."""

    def problems(self, settings: Settings) -> Iterator[tuple[str, str]]:
        """What is wrong with its settings beyond a single value: the key, and the problem."""

    def make(self, place: ConfiguredShard, settings: Settings) -> SharedShard:
        """The shard, not opened yet. Imports the driver."""

    async def look_at(self, place: ConfiguredShard, settings: Settings, now_ms: int) -> Look:
        """Schema, servers, counts and keys, without serving the shard. Raises `Unavailable`."""

    async def live_jobs(self, place: ConfiguredShard, settings: Settings, now_ms: int, limit: int) -> LiveJobs:
        """Some of the jobs that wait or run, without serving the shard. Raises `Unavailable`."""

    async def forget_timed_keys(self, place: ConfiguredShard, settings: Settings, now_ms: int) -> int:
        """Deletes the unique keys that only time would free; how many there were. Raises `Unavailable`."""

    async def migrate(self, place: ConfiguredShard, settings: Settings) -> Migrated:
        """Takes the shard to this program's schema. Raises `Unavailable`."""
