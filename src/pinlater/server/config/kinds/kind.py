"""What a kind of database store declares about itself. Imports neither a driver nor a store: those are imported when a shard is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pinlater.server.config.shard_entry import ConfiguredShard, ShardAddress, ShardEntry, read_document

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import SharedShard
    from pinlater.server.storage.offline import Offline


class ShardedKind(ABC):
    """A store in databases that several servers use. Its shards are in a shard file or, a single one, in a URL."""

    name: ClassVar[str]
    """The prefix before the colon of a location; also the name of the table of its settings, and of the extra that installs its driver."""
    title: ClassVar[str]
    """Its name in sentences."""
    schemes: ClassVar[Sequence[str]]
    """What a URL may begin with."""
    url_form: ClassVar[str]
    """How the URL of a single shard is written."""
    url_options: ClassVar[Mapping[str, str]]
    """The options that may follow the `?` of a URL, and their formats."""
    port: ClassVar[int]
    """The port of an address that names none."""
    nicknames: ClassVar[Mapping[str, str]]
    """Words that are mistaken for its name, and the hint for each."""
    driver: ClassVar[Sequence[str]]
    """The modules of the library that it needs. The first is the one that must be there."""
    driver_title: ClassVar[str]
    """The name of that library in sentences."""

    @abstractmethod
    def database_of_url(self, name: str) -> str | None:
        """The database that a URL names; the name may be empty. Raises ValueError with a text for the operator."""

    @abstractmethod
    def holds(self, document: Mapping[str, Any]) -> bool:
        """Returns whether the JSON of a shard file can be of this kind and of no other."""

    @abstractmethod
    def entries(self, document: Mapping[str, Any], settings: Settings) -> Iterator[ShardEntry]:
        """The entries of a shard file, in order. Raises ValueError that names the entry."""

    @abstractmethod
    def endpoint(self, address: ShardAddress, shard: str, password: str, settings: Settings) -> Any:
        """Returns where the shard of that name is, for its driver. The settings supply what the address leaves out."""

    @abstractmethod
    def make(self, place: ConfiguredShard, settings: Settings) -> SharedShard:
        """The shard, not opened yet. Imports the driver."""

    @abstractmethod
    def offline(self) -> Offline:
        """Work on a shard without serving it. Imports the driver."""

    def problems(self, settings: Settings) -> Iterator[tuple[str, str]]:
        """Returns the problems that concern several of its settings, each with a key."""
        return iter(())

    def parse(self, content: bytes, settings: Settings) -> Sequence[ShardEntry]:
        """Returns the content of a shard file. Raises ValueError that names the entry."""
        found: dict[str, ShardEntry] = {}
        for entry in self.entries(read_document(content), settings):
            other = found.setdefault(entry.names[0], entry)
            if other is not entry:
                same = other.key == entry.key
                raise ValueError(
                    f"the shard {entry.key!r} occurs twice"
                    if same
                    else f"{other.key!r} and {entry.key!r} have the same number"
                )
        if not found:
            raise ValueError("it names no shard")
        if all(entry.lost for entry in found.values()):
            raise ValueError("every shard in it is lost (lostForGood)")
        return list(found.values())

    def shards(
        self, entries: Sequence[ShardEntry], from_file: str | None, settings: Settings
    ) -> Sequence[ConfiguredShard]:
        """The shards of these entries. `from_file`: the password in the password file."""
        return [
            ConfiguredShard(
                name,
                entry.key,
                self.endpoint(entry.address, name, self._password(entry.address, from_file, settings), settings),
                not entry.dequeue_only,
                entry.lost,
            )
            for entry in entries
            for name in entry.names
        ]

    def _password(self, address: ShardAddress, from_file: str | None, settings: Settings) -> str:
        given = (address.password, from_file, getattr(settings, self.name).password)
        return next((one for one in given if one is not None), "")
