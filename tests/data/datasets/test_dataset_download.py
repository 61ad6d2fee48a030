"""Downloads against a server on this machine: resumed, checked, unpacked in one step."""

import dataclasses
import hashlib
import http.server
import io
import socket
import tarfile
import threading
import zipfile

import numpy as np
import pytest
from filelock import FileLock

from camp.core.errors import CampError
from camp.core.progress import Bar, Progress
from camp.data.datasets import DATASETS, download, load_dataset
from camp.data.datasets.download import download_dataset, fetch, unpack
from camp.data.datasets.info import Archive

QUIET = Progress(quiet=True)


class Server:
    """Serves `files`; may break off after some bytes, and may know nothing of ranges."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.break_after: list[int] = []
        self.ranges = True
        self.requests: list[str | None] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.requests.append(wanted)
                data = outer.files.get(self.path.lstrip("/"))
                if data is None:
                    self.send_error(404)
                    return
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and outer.ranges else 0
                if start and start >= len(data):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(data)}")
                    self.end_headers()
                    return
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Length", str(len(data) - start))
                self.end_headers()
                end = start + outer.break_after.pop(0) if outer.break_after else len(data)
                self.wfile.write(data[start:end])

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "PAUSE", 0.0)
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def cifar_archive() -> bytes:
    """A CIFAR-10 of seven files with a few images each."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            records = np.random.default_rng(0).integers(0, 256, (10, 3073), dtype=np.uint8)
            records[:, 0] = np.arange(10)
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = records.nbytes
            archive.addfile(info, io.BytesIO(records.tobytes()))
    return file.getvalue()


def offer(monkeypatch, server: Server, data: bytes, checksum: str | None = None, note: str = "") -> None:
    """Let cifar10 come from `server`."""
    server.files["cifar.tar.gz"] = data
    if checksum is None and not note:
        checksum = "md5:" + hashlib.md5(data).hexdigest()
    archive = Archive(f"{server.address}/cifar.tar.gz", checksum, note)
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(DATASETS["cifar10"], archives=(archive,)))


def test_a_data_set_is_downloaded_and_loads(monkeypatch, server, tmp_path):
    offer(monkeypatch, server, cifar_archive())
    folder = download_dataset("cifar10", tmp_path / "deep" / "cifar10", QUIET)
    assert folder == tmp_path / "deep" / "cifar10"
    assert len(load_dataset("cifar10", folder)) == 60
    assert [path.name for path in folder.parent.iterdir()] == ["cifar10"]  # nothing is left beside it
    download_dataset("cifar10", folder, QUIET)
    assert len(server.requests) == 1  # it is there


def test_the_default_place(monkeypatch, server, tmp_path):
    offer(monkeypatch, server, cifar_archive())
    monkeypatch.setenv("CAMP_DATA", str(tmp_path))
    assert download_dataset("cifar10", progress=QUIET) == tmp_path / "cifar10"
    assert len(load_dataset("cifar10")) == 60


def test_lost_connections_are_retried(monkeypatch, server, tmp_path):
    data = cifar_archive()
    offer(monkeypatch, server, data)
    server.break_after = [1000, 5000]
    download_dataset("cifar10", tmp_path / "c", QUIET)
    assert server.requests == [None, "bytes=1000-", "bytes=6000-"]
    assert len(load_dataset("cifar10", tmp_path / "c")) == 60


def test_an_interrupted_download_is_resumed(monkeypatch, server, tmp_path):
    data = cifar_archive()
    offer(monkeypatch, server, data)
    server.break_after = [4000] + [0] * 10
    with pytest.raises(CampError, match=r"4,000 bytes received so far are kept"):
        download_dataset("cifar10", tmp_path / "c", QUIET)
    assert not (tmp_path / "c").exists()
    server.break_after, server.requests = [], []
    download_dataset("cifar10", tmp_path / "c", QUIET)
    assert server.requests == ["bytes=4000-"]
    assert len(load_dataset("cifar10", tmp_path / "c")) == 60


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.files["x"] = bytes(range(256)) * 10
    server.ranges = False
    (tmp_path / "x.part").write_bytes(b"something old")
    fetch(f"{server.address}/x", tmp_path / "x.part", QUIET)
    assert (tmp_path / "x.part").read_bytes() == server.files["x"]


def test_a_complete_file_is_not_downloaded_again(server, tmp_path):
    server.files["x"] = b"whole file"
    (tmp_path / "x.part").write_bytes(b"whole file")
    fetch(f"{server.address}/x", tmp_path / "x.part", QUIET)
    assert (tmp_path / "x.part").read_bytes() == b"whole file"
    (tmp_path / "x.part").write_bytes(b"a file longer than that on the server")
    fetch(f"{server.address}/x", tmp_path / "x.part", QUIET)
    assert (tmp_path / "x.part").read_bytes() == b"whole file"


def test_a_file_with_a_wrong_checksum_is_refused_and_removed(monkeypatch, server, tmp_path):
    data = cifar_archive()
    offer(monkeypatch, server, data[:-1] + b"?", "md5:" + hashlib.md5(data).hexdigest())
    with pytest.raises(CampError, match="does not have the checksum md5:"):
        download_dataset("cifar10", tmp_path / "c", QUIET)
    assert not (tmp_path / "c").exists()
    server.files["cifar.tar.gz"] = data
    download_dataset("cifar10", tmp_path / "c", QUIET)
    assert server.requests == [None, None]  # the damaged file was not continued
    assert len(load_dataset("cifar10", tmp_path / "c")) == 60


def test_a_missing_checksum_is_reported(monkeypatch, server, tmp_path, capsys):
    offer(monkeypatch, server, cifar_archive(), note="its publisher gives no checksum.")
    download_dataset("cifar10", tmp_path / "c")
    assert "cifar.tar.gz: its publisher gives no checksum." in capsys.readouterr().err


def test_several_files_are_unpacked_side_by_side(monkeypatch, server, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("clipart/bird/1.png", b"x")
    server.files = {"clipart.zip": packed.getvalue(), "clipart_train.txt": b"clipart/bird/1.png 0\n"}
    archives = tuple(
        Archive(f"{server.address}/{name}", "sha256:" + hashlib.sha256(data).hexdigest())
        for name, data in server.files.items()
    )
    monkeypatch.setitem(DATASETS, "domainnet", dataclasses.replace(DATASETS["domainnet"], archives=archives))
    folder = download_dataset("domainnet", tmp_path / "d", QUIET)
    assert (folder / "clipart" / "bird" / "1.png").read_bytes() == b"x"
    assert (folder / "clipart_train.txt").read_text().startswith("clipart/bird")


def test_without_network_a_sentence(monkeypatch, server, tmp_path):
    offer(monkeypatch, server, b"")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        archive = Archive(f"http://127.0.0.1:{unused.getsockname()[1]}/x.tar.gz", "md5:" + "0" * 32)
        monkeypatch.setitem(
            DATASETS, "cifar10", dataclasses.replace(DATASETS["cifar10"], archives=(archive,))
        )
        with pytest.raises(CampError, match=r"Could not download .*; check the network"):
            download_dataset("cifar10", tmp_path / "c", QUIET)


def test_a_missing_file_on_the_server_is_an_error(monkeypatch, server, tmp_path):
    offer(monkeypatch, server, b"")
    server.files.clear()
    with pytest.raises(CampError, match="answers 404"):
        download_dataset("cifar10", tmp_path / "c", QUIET)


@pytest.mark.parametrize("name", ["stanford_cars", "imagenet_subset", "digits", "folder", "embeddings"])
def test_what_cannot_be_downloaded_says_how(name, tmp_path):
    with pytest.raises(CampError, match="cannot be downloaded here") as caught:
        download_dataset(name, tmp_path / "x", QUIET)
    assert DATASETS[name].how_to_get in str(caught.value)


def test_a_folder_with_other_files_is_not_changed(monkeypatch, server, tmp_path):
    offer(monkeypatch, server, cifar_archive())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CampError, match="empty or new folder"):
        download_dataset("cifar10", tmp_path, QUIET)
    assert server.requests == []


def test_two_downloads_do_not_mix(monkeypatch, server, tmp_path):
    offer(monkeypatch, server, cifar_archive())
    (tmp_path / ".c.partial").mkdir()
    with FileLock(tmp_path / ".c.partial" / "lock"), pytest.raises(CampError, match="Another process"):
        download_dataset("cifar10", tmp_path / "c", QUIET)


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "..\\evil.txt"])
def test_zip_members_that_leave_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("good.txt", b"x")
        archive.writestr(name, b"x")
    (tmp_path / "out").mkdir()
    with pytest.raises(CampError, match="leaves the folder"):
        unpack(tmp_path / "x.zip", tmp_path / "out", Bar("", 1))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind", ["name", "link"])
def test_tar_members_that_leave_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        if kind == "name":
            info = tarfile.TarInfo("../evil.txt")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
        else:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc"
            archive.addfile(info)
    (tmp_path / "out").mkdir()
    with pytest.raises(CampError, match="leaves the folder"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out", Bar("", 1))
    assert not (tmp_path / "evil.txt").exists()


def test_a_damaged_archive_is_an_error(tmp_path):
    whole = cifar_archive()
    (tmp_path / "x.tar.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "out").mkdir()
    with pytest.raises(CampError, match="damaged"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out", Bar("", 1))
