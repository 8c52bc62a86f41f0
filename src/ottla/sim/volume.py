"""The content of a simulated disk, twice: as processes see it (the page cache) and as it is on disk.

The bytes of a file are durable once the file is synced, a name once its folder is. After a power loss the rest may be
there, or not, or in part, as with real file systems; the seed decides.
"""

import errno
import os
from random import Random

PAGE = 4096
_CHUNK = 64 * PAGE
_ZEROS = bytes(_CHUNK)


class Inode:
    """The bytes of one file. Reads see `data`; `_durable` holds the pages on disk."""

    def __init__(self, now_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = now_ms
        self.mappings = 0
        self._durable: dict[int, bytes] = {}
        self._durable_size = 0
        self._dirty: set[int] = set()
        # The smallest size that the file was truncated to since its last sync.
        self._truncated_to: int | None = None
        self._has_mapped_writes = False

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        end = position + len(data)
        if end > len(self.data):
            self._resize(end)
        self.data[position:end] = data
        self._dirty.update(range(position // PAGE, -(-end // PAGE)))

    def resize(self, size: int) -> None:
        if size == len(self.data):
            return
        if size < len(self.data):
            self._truncated_to = size if self._truncated_to is None else min(self._truncated_to, size)
            self._dirty.update(range(size // PAGE, -(-len(self.data) // PAGE)))
        self._resize(size)

    def map(self) -> memoryview:
        self.mappings += 1
        self._has_mapped_writes = True
        return memoryview(self.data)

    def sync(self) -> None:
        for page in self._dirty_pages():
            self._store(page)
        pages = -(-len(self.data) // PAGE)
        for page in [page for page in self._durable if page >= pages]:
            del self._durable[page]
        self._durable_size = len(self.data)
        self._dirty.clear()
        self._truncated_to = None
        self._has_mapped_writes = self.mappings > 0

    def detach(self) -> None:
        """Copies the bytes, because a dead process may still hold a mapping of them."""
        if self.mappings:
            self.data = bytearray(self.data)
            self.mappings = 0

    def lose_power(self, random: Random | None) -> str:
        """Applies a power loss. Returns in one word what happened to the bytes that were not durable."""
        durable = self._durable_bytes()
        dirty = self._dirty_pages()
        fate = "clean"
        if dirty or self._truncated_to is not None or len(durable) != len(self.data):
            fate, durable = ("lost", durable) if random is None else self._tear(durable, dirty, random)
        self.data = durable
        self.mappings = 0
        self._dirty = set(range(-(-len(durable) // PAGE)))
        self.sync()
        return fate

    def _tear(self, durable: bytearray, dirty: list[int], random: Random) -> tuple[str, bytearray]:
        fate = random.choice(("lost", "kept", "prefix", "pages"))
        if fate == "lost":
            return fate, durable
        if fate == "kept":
            return fate, bytearray(self.data)
        if self._truncated_to is not None:
            # A file system does not keep a write without the truncation before it.
            del durable[self._truncated_to :]
        if fate == "prefix":
            first = min(dirty, default=0) * PAGE
            kept = random.randint(min(first, len(self.data)), len(self.data))
            return fate, self.data[:kept] + durable[kept:]
        size = random.choice((len(durable), len(self.data), random.randint(len(durable), len(self.data))))
        torn = durable + bytes(size - len(durable))
        for page in dirty:
            start = page * PAGE
            kept = random.choice((0, PAGE, random.randrange(PAGE)))
            end = min(start + kept, size, len(self.data))
            if end > start:
                torn[start:end] = self.data[start:end]
        return fate, torn

    def _resize(self, size: int) -> None:
        if self.mappings:
            raise OSError(
                errno.EBUSY, "the simulated disk cannot change the size of a file while it is mapped"
            )
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def _dirty_pages(self) -> list[int]:
        if self._has_mapped_writes:
            self._compare()
        return sorted(page for page in self._dirty if page * PAGE < len(self.data))

    def _compare(self) -> None:
        """Finds the pages that were written through a mapping, by comparing them."""
        for start in range(0, len(self.data), _CHUNK):
            chunk = self.data[start : start + _CHUNK]
            first = start // PAGE
            pages = range(first, first + -(-len(chunk) // PAGE))
            if chunk == _ZEROS[: len(chunk)] and not any(page in self._durable for page in pages):
                continue
            for page in pages:
                offset = (page - first) * PAGE
                if chunk[offset : offset + PAGE].rstrip(b"\0") != self._durable.get(page, b"").rstrip(b"\0"):
                    self._dirty.add(page)

    def _store(self, page: int) -> None:
        data = bytes(self.data[page * PAGE : (page + 1) * PAGE])
        if data.strip(b"\0"):
            self._durable[page] = data
        else:
            self._durable.pop(page, None)

    def _durable_bytes(self) -> bytearray:
        durable = bytearray(self._durable_size)
        for page, data in self._durable.items():
            start = page * PAGE
            end = min(start + len(data), self._durable_size)
            durable[start:end] = data[: end - start]
        return durable


class Directory:
    def __init__(self, now_ms: int) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: set[int] = set()  # the numbers of its changes that are not durable
        self.modified_ms = now_ms


Node = Inode | Directory
# An atomic change of names. A rename changes two names.
NameChange = list[tuple[Directory, str, Node | None]]


class Volume:
    """The tree of names and files. Paths are absolute."""

    def __init__(self, now_ms: int, mounts: tuple[str, ...]) -> None:
        self.root = Directory(now_ms)
        self.locks: dict[str, object] = {}
        self._pending: dict[int, NameChange] = {}  # by number, in the order of the changes
        self._changes = 0
        for mount in mounts:
            self.make_dirs(mount, now_ms)
        for number in list(self._pending):
            self._commit(number)

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def node(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def inode(self, path: str) -> Inode:
        node = self.node(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def create(self, path: str, now_ms: int) -> Inode:
        parent, name = self._parent(path)
        inode = Inode(now_ms)
        self._change([(parent, name, inode)])
        return inode

    def make_dirs(self, path: str, now_ms: int) -> None:
        here = self.root
        for name in _names(path):
            node = here.entries.get(name)
            if node is None:
                node = Directory(now_ms)
                self._change([(here, name, node)])
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            here = node

    def rename(self, source: str, target: str) -> None:
        node = self.node(source)
        occupant = self.find(target)
        if occupant is node:
            return
        if isinstance(occupant, Directory):
            if isinstance(node, Inode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
            if occupant.entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        elif occupant is not None and isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
        source_parent, source_name = self._parent(source)
        target_parent, target_name = self._parent(target)
        self._change([(source_parent, source_name, None), (target_parent, target_name, node)])

    def link(self, source: str, target: str) -> None:
        if self.find(target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        parent, name = self._parent(target)
        self._change([(parent, name, self.inode(source))])

    def remove(self, path: str) -> None:
        self.inode(path)
        parent, name = self._parent(path)
        self._change([(parent, name, None)])

    def remove_tree(self, path: str) -> None:
        directory = self.directory(path)
        for name in sorted(directory.entries):
            child = f"{path}/{name}"
            if isinstance(directory.entries[name], Directory):
                self.remove_tree(child)
            else:
                self.remove(child)
        parent, name = self._parent(path)
        self._change([(parent, name, None)])

    def sync_dir(self, path: str) -> None:
        """Makes the names in `path` durable, and the other folder of a rename between two folders."""
        durable: set[int] = set()
        unvisited = [(self.directory(path), self._changes)]
        while unvisited:
            directory, before = unvisited.pop()
            for number in directory.pending:
                if number < before and number not in durable:
                    durable.add(number)
                    change = self._pending[number]
                    unvisited += [(other, number) for other, _, _ in change if other is not directory]
        for number in sorted(durable):
            self._commit(number)

    def used_bytes(self) -> int:
        return sum(len(inode.data) for _, inode in self._files("", self.root))

    def detach(self) -> None:
        for _, inode in self._files("", self.root):
            inode.detach()

    def lose_power(self, random: Random | None) -> list[str]:
        """In each folder a random prefix of the name changes survives. Then each file loses its unsynced bytes.

        Without `random`, nothing survives that is not durable.
        """
        stopped: set[Directory] = set()
        for number, change in list(self._pending.items()):
            directories = [directory for directory, _, _ in change]
            if not stopped.isdisjoint(directories) or random is None or random.random() < 0.5:
                stopped.update(directories)
                self._forget(number)
            else:
                self._commit(number)
        _drop_lost_names(self.root)
        return [f"{path} {inode.lose_power(random)}" for path, inode in self._files("", self.root)]

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self.directory(parent or "/"), name

    def _change(self, change: NameChange) -> None:
        for directory, name, node in change:
            _apply(directory.entries, name, node)
            directory.pending.add(self._changes)
        self._pending[self._changes] = change
        self._changes += 1

    def _commit(self, number: int) -> None:
        for directory, name, node in self._forget(number):
            _apply(directory.durable, name, node)

    def _forget(self, number: int) -> NameChange:
        change = self._pending.pop(number)
        for directory, _, _ in change:
            directory.pending.discard(number)
        return change

    def _files(self, path: str, directory: Directory) -> list[tuple[str, Inode]]:
        found: list[tuple[str, Inode]] = []
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Inode):
                found.append((f"{path}/{name}", node))
            else:
                found.extend(self._files(f"{path}/{name}", node))
        return found


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _apply(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _drop_lost_names(directory: Directory) -> None:
    directory.entries = dict(directory.durable)
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _drop_lost_names(node)
