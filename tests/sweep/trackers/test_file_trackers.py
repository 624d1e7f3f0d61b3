"""Files of results (csv, json and others), row by row, whatever happened to their writer."""

import csv
import gzip
import json
import math
import os
import re
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    struct_pb2,
)

from sweep import trackers
from sweep.core.errors import StorageError
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.driver.tracking import sync
from sweep.history.events import End, Status
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import Comparable, TrackerContext
from sweep.trackers.tensorboard import crc32c
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.events import STARTED, Story, publish_with, row, rows, tell_everything

FILES = {
    "csv": "progress.csv",
    "json": "result.json",
    "tensorboard": "events.out.tfevents.sweep",
    "wandb": "run-sweep.wandb",
}


@pytest.fixture(params=FILES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    told = Story.create(tmp_path)
    tell_everything(told)
    return told


def differences(name: str, where: TrackerContext) -> list[str]:
    tracker = trackers.find(name)(where)
    assert isinstance(tracker, Comparable)
    return tracker.differences()


def contents(story: Story) -> dict[str, bytes]:
    logs = story.where.folder.logs
    files = [path for path in logs.rglob("*") if path.is_file()]
    return {str(path.relative_to(logs)): path.read_bytes() for path in sorted(files)}


def written(name: str, folder: Folder, trial: str = "trial-0") -> Path:
    return folder.logs / trial / FILES[name]


# ---- what stands in them ------------------------------------------------------------------------


def test_csv_and_json_hold_every_result_of_the_ledger_exactly(story: Story) -> None:
    for name in ("csv", "json"):
        publish_with(trackers.find(name), story)
    for trial in range(4):
        due = {r.iteration: dict(r.metrics) for r in story.ledger.results(trial)}
        table = table_of(story, trial)
        lines = written("json", story.where.folder, f"trial-{trial}").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        assert [int(line["training_iteration"]) for line in table] == list(due)
        assert [line["training_iteration"] for line in found] == list(due)
        for place, result in enumerate(due.values()):
            assert repr(sorted(found[place].items())) == repr(sorted(result.items()))
            assert table[place] == {key: str(value) for key, value in result.items()}


def table_of(story: Story, trial: int) -> list[dict[str, str]]:
    with written("csv", story.where.folder, f"trial-{trial}").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_settings_of_a_trial_stand_beside_its_results(name: str, story: Story) -> None:
    publish_with(trackers.find(name), story)
    settings = json.loads((story.where.folder.logs / "trial-1" / "params.json").read_text())
    assert settings == dict(story.history.trials[1].config)


def test_each_seed_and_each_test_has_a_folder(name: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"trackers": [name], "seeds": 2, "searcher": "random"}
    folder = sweeps.make(tmp_path, trials=2, stop={"training_iteration": 2}, **changes)
    sweeps.run(folder)
    last = Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(1, 1))
    with launch.open_context(last) as (parts, _):
        FinalEvaluator(parts, lambda _: None).run()
    sync.send(folder, pytest.fail, 60.0)
    found = sorted(path.parent.name for path in folder.logs.glob(f"*/{FILES[name]}"))
    tested = [one for one in found if one.endswith(".test0")]
    assert set(found) - set(tested) == {"trial-0", "trial-0.1", "trial-1", "trial-1.1"}
    assert len(tested) == 1
    assert differences(name, sync.tracker_context(folder)) == []


def test_a_result_that_comes_later_gets_a_column_and_loses_nothing(tmp_path: Path) -> None:
    story = Story.create(tmp_path)
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 2, note='a\nb, "c"'))
    story.go_on(0)
    publish_with(trackers.find("csv"), story)
    before = written("csv", story.where.folder).read_text().splitlines()
    seen = len(story.records)
    story.close(0, Status.PAUSED, [row(0, 3), row(0, 4, **{"evaluation/x": 5}), row(0, 5)])
    publish_with(trackers.find("csv"), story, first=seen + 1)
    header, *lines = written("csv", story.where.folder).read_text().splitlines()
    assert header == f"{before[0]},evaluation/x"
    assert lines[:2] == [f"{line}," for line in before[1:]]
    table = table_of(story, 0)
    assert [line["evaluation/x"] for line in table] == ["", "", "", "5", ""]
    assert [line["note"] for line in table] == ['a b, "c"', 'a b, "c"', "", "", ""]
    assert differences("csv", story.where) == []


def test_iterations_that_are_run_again_replace_those_before(name: str, story: Story) -> None:
    publish_with(trackers.find(name), story)
    assert differences(name, story.where) == []
    if name == "tensorboard":
        _, _, *events = decoded(written(name, story.where.folder, "trial-2"))
        assert [round(event.wall_time) for event in events] == [
            *(STARTED + 1, STARTED + 2),
            *(STARTED + 63, STARTED + 64, STARTED + 65),
        ]
    if name == "csv":
        seconds = [float(line["time_total_s"]) for line in table_of(story, 2)]
        assert seconds == [0.5, 1.0, 28.5, 38.0, 47.5]


def test_checkpoints_that_were_lost_take_their_rows_with_them(name: str, tmp_path: Path) -> None:
    """A slice that went back and ended before its first result."""
    story = Story.create(tmp_path)
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 4))
    story.go_on(0)
    story.close(0, Status.PAUSED, end=End.LOST, source=2)
    publish_with(trackers.find(name), story)
    assert differences(name, story.where) == []
    shorter = written(name, story.where.folder).stat().st_size
    story.go_on(0)
    story.close(0, Status.PAUSED, rows(0, 3, 4))
    publish_with(trackers.find(name), story, first=len(story.records) - 1)
    assert written(name, story.where.folder).stat().st_size > shorter
    assert differences(name, story.where) == []


# ---- kills --------------------------------------------------------------------------------------


def test_a_kill_at_any_byte_of_a_write_costs_and_doubles_nothing(name: str, story: Story) -> None:
    """The file as it stood, then some of the bytes that were about to be written."""
    seen = 12
    publish_with(trackers.find(name), story, last=seen)
    before = contents(story)
    publish_with(trackers.find(name), story, first=seen + 1)
    after = contents(story)
    path = f"trial-0/{FILES[name]}"
    same = len(before[path]) - (12 if name == "wandb" else 0)  # the record of the end
    assert after[path].startswith(before[path][:same])
    sizes = range(same, len(after[path]), 7 if name == "tensorboard" else 29)
    for size in sizes:
        file = story.where.folder.logs / path
        file.write_bytes(after[path][:size])
        publish_with(trackers.find(name), story, first=seen + 1)
        assert contents(story) == after
    assert len(sizes) > 5


def test_a_kill_at_any_byte_of_a_new_file_costs_nothing(name: str, story: Story) -> None:
    publish_with(trackers.find(name), story)
    after = contents(story)
    path = f"trial-1/{FILES[name]}"
    for size in range(0, len(after[path]), 31):
        (story.where.folder.logs / path).write_bytes(after[path][:size])
        publish_with(trackers.find(name), story)
        assert contents(story) == after


def test_what_a_killed_process_left_half_written_is_removed(name: str, story: Story) -> None:
    publish_with(trackers.find(name), story, last=6)
    left = story.where.folder.logs / "trial-0" / f".tmp-0-{2**22 + 1}-{'0' * 16}"
    left.write_bytes(b"half")
    publish_with(trackers.find(name), story, first=7)
    assert not left.exists()


def test_a_full_disk_is_tried_again_and_leaves_no_gap(
    name: str, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = trackers.find(name)(story.where)
    tracker.publish(story.records[:12])

    def refuse(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", refuse)
        with pytest.raises(OSError, match="No space"):
            tracker.publish(story.records[12:])
    tracker.publish(story.records[12:])
    assert differences(name, story.where) == []


# ---- verify -------------------------------------------------------------------------------------


def test_verify_names_what_differs_and_repairs_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sweeps.make(tmp_path, trials=3, trackers=[name])
    sweeps.run(folder)
    sync.send(folder, pytest.fail, 60.0)
    here = Here(capsys, folder.root)
    assert here("verify", "demo")[0] == 0
    file = written(name, folder)
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    written(name, folder, "trial-1").unlink()
    (folder.logs / "trial-2" / "params.json").write_text("{}")
    (folder.logs / "trial-77").mkdir()
    written(name, folder, "trial-77").write_bytes(whole)
    code, out, _ = here("verify", "demo")
    assert code == 6
    said = " ".join(out.split())
    for words in ("other bytes at its end", "params.json differs", "no such trial"):
        assert words in said
    assert re.search(r"logs/trial-1: \S+ lacks \d rows", said)
    assert here("verify", "demo", "--repair")[0] == 0
    assert here("verify", "demo")[0] == 0
    assert file.read_bytes() == whole


def test_a_value_that_somebody_changed_is_found(name: str, story: Story) -> None:
    publish_with(trackers.find(name), story)
    file = written(name, story.where.folder)
    content = file.read_bytes()
    score = struct.pack("<f", 1 - 1 / 2) if name == "tensorboard" else b"0.5"
    assert score in content
    other = bytes(reversed(score)) if name == "tensorboard" else b"0.6"
    file.write_bytes(content.replace(score, other, 1))
    problems = " ".join(differences(name, story.where))
    if name == "wandb":  # its checksum is wrong: there is no row from there on
        assert "rows, the first is of iteration" in problems
    else:
        assert "other rows, the first is of iteration" in problems


def test_nothing_is_written_behind_a_link(name: str, story: Story, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    story.where.folder.logs.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"):
        publish_with(trackers.find(name), story)
    story.where.folder.logs.unlink()
    publish_with(trackers.find(name), story, last=4)
    target = tmp_path / "target"
    target.write_text("precious")
    written(name, story.where.folder).symlink_to(target)
    with pytest.raises(Exception, match=r"not a regular file, but a link, .*; move it away$"):
        publish_with(trackers.find(name), story)
    assert (list(elsewhere.iterdir()), target.read_text()) == ([], "precious")


# ---- TensorBoard's and W&B's formats, read by protobuf ------------------------------------------


KINDS = descriptor_pb2.FieldDescriptorProto
#: Message → its fields: name, number, kind, type ("[]": many of them).
Layout = dict[str, list[tuple[str, int, int, str]]]
#: ``tensorboard/compat/proto``, as much of it as is written.
TENSORBOARD: Layout = {
    "Event": [
        ("wall_time", 1, KINDS.TYPE_DOUBLE, ""),
        ("step", 2, KINDS.TYPE_INT64, ""),
        ("file_version", 3, KINDS.TYPE_STRING, ""),
        ("summary", 5, KINDS.TYPE_MESSAGE, ".t.Summary"),
    ],
    "Summary": [("value", 1, KINDS.TYPE_MESSAGE, ".t.Value[]")],
    "Value": [
        ("tag", 1, KINDS.TYPE_STRING, ""),
        ("simple_value", 2, KINDS.TYPE_FLOAT, ""),
        ("metadata", 9, KINDS.TYPE_MESSAGE, ".t.Metadata"),
    ],
    "Metadata": [("plugin_data", 1, KINDS.TYPE_MESSAGE, ".t.PluginData")],
    "PluginData": [
        ("plugin_name", 1, KINDS.TYPE_STRING, ""),
        ("content", 2, KINDS.TYPE_MESSAGE, ".t.HParams"),  # bytes that hold this message
    ],
    "HParams": [("session_start_info", 3, KINDS.TYPE_MESSAGE, ".t.Session")],
    "Session": [
        ("hparams", 1, KINDS.TYPE_MESSAGE, ".t.Entry[]"),
        ("start_time_secs", 5, KINDS.TYPE_DOUBLE, ""),
    ],
    "Entry": [
        ("key", 1, KINDS.TYPE_STRING, ""),
        ("value", 2, KINDS.TYPE_MESSAGE, ".google.protobuf.Value"),
    ],
}
#: ``wandb/proto/wandb_internal.proto``, as much of it as is written.
WANDB: Layout = {
    "Record": [
        ("history", 2, KINDS.TYPE_MESSAGE, ".t.History"),
        ("summary", 3, KINDS.TYPE_MESSAGE, ".t.Items"),
        ("run", 17, KINDS.TYPE_MESSAGE, ".t.Run"),
        ("exit", 18, KINDS.TYPE_MESSAGE, ".t.Exit"),
    ],
    "History": [
        ("item", 1, KINDS.TYPE_MESSAGE, ".t.Item[]"),
        ("step", 2, KINDS.TYPE_MESSAGE, ".t.Step"),
    ],
    "Items": [("update", 1, KINDS.TYPE_MESSAGE, ".t.Item[]")],
    "Item": [("key", 1, KINDS.TYPE_STRING, ""), ("value_json", 16, KINDS.TYPE_STRING, "")],
    "Step": [("num", 1, KINDS.TYPE_INT64, "")],
    "Run": [
        ("run_id", 1, KINDS.TYPE_STRING, ""),
        ("project", 3, KINDS.TYPE_STRING, ""),
        ("config", 4, KINDS.TYPE_MESSAGE, ".t.Items"),
        ("run_group", 6, KINDS.TYPE_STRING, ""),
        ("display_name", 8, KINDS.TYPE_STRING, ""),
        ("start_time", 17, KINDS.TYPE_MESSAGE, ".t.Time"),
    ],
    "Time": [("seconds", 1, KINDS.TYPE_INT64, ""), ("nanos", 2, KINDS.TYPE_INT32, "")],
    "Exit": [("exit_code", 1, KINDS.TYPE_INT32, "")],
}


def _message(layout: Layout, name: str) -> Any:
    """A class that reads a message, made from its fields."""
    file = descriptor_pb2.FileDescriptorProto(name="layout.proto", package="t", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    for message, fields in layout.items():
        made = file.message_type.add(name=message)
        for field, number, kind, type_name in fields:
            many = type_name.endswith("[]")
            label = KINDS.LABEL_REPEATED if many else KINDS.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, type=kind, label=label)
            if type_name:
                added.type_name = type_name.strip("[]")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))


def decoded(file: Path) -> Iterator[Any]:
    """The events of a file, each record whole and its checksums right."""
    content, event = file.read_bytes(), _message(TENSORBOARD, "Event")
    while content:
        size = struct.unpack_from("<Q", content)[0]
        data = content[12 : 12 + size]
        assert struct.unpack_from("<I", content, 8)[0] == masked(content[:8])
        assert struct.unpack_from("<I", content, 12 + size)[0] == masked(data)
        yield event.FromString(data)
        content = content[16 + size :]


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # both of RFC 3720


def test_tensorboard_is_given_each_result_at_its_step_and_the_settings(story: Story) -> None:
    publish_with(trackers.find("tensorboard"), story)
    version, settings, *results = decoded(written("tensorboard", story.where.folder))
    assert version.file_version == "brain.Event:2"
    (value,) = settings.summary.value
    assert value.tag == "_hparams_/session_start_info"
    assert value.metadata.plugin_data.plugin_name == "hparams"
    session = value.metadata.plugin_data.content.session_start_info
    found = {entry.key: entry.value for entry in session.hparams}
    assert found["lr"].number_value == 0.001
    assert found["net"].string_value == "[64, 64]"
    assert [event.step for event in results] == [100 * i for i in range(1, 10)]
    for iteration, event in enumerate(results, start=1):
        values = {value.tag: value.simple_value for value in event.summary.value}
        assert set(values) == {
            *("training_iteration", "timesteps_total", "time_total_s", "info/score", "info/loss")
        }
        assert values["training_iteration"] == iteration
        assert values["info/score"] == pytest.approx(1 - 1 / iteration, rel=1e-7)
        assert event.wall_time == STARTED + iteration


def records(file: Path) -> Iterator[Any]:
    """The records of a file of W&B, put together as LevelDB's description of its log says."""
    content, record = file.read_bytes(), _message(WANDB, "Record")
    assert content[:7] == b":W&B\xe1\xbe\x00"
    data = b""
    for start in range(0, len(content), 32768):
        block = content[start : start + 32768]
        place = 0 if start else 7
        while len(block) - place >= 7:
            checksum, size, kind = struct.unpack_from("<IHB", block, place)
            part = block[place + 6 : place + 7 + size]
            assert zlib.crc32(part) == checksum
            assert (kind in (1, 2)) == (not data)  # a whole record, or a first piece
            data += part[1:]
            place += 7 + size
            if kind in (1, 4):
                yield record.FromString(data)
                data = b""
        assert not any(block[place:])
    assert not data


def read_items(items: Any) -> dict[str, Any]:
    return {item.key: json.loads(item.value_json) for item in items}


def test_wandb_is_given_the_settings_and_each_result_at_its_iteration(story: Story) -> None:
    publish_with(trackers.find("wandb"), story)
    run, *results, end = records(written("wandb", story.where.folder))
    assert run.run.run_id == f"{story.where.sweep_id}-0"
    assert (run.run.project, run.run.run_group, run.run.display_name) == ("demo", *["trial-0"] * 2)
    assert read_items(run.run.config.update) == dict(story.history.trials[0].config)
    assert abs(run.run.start_time.seconds - time.time()) < 1e6
    newest, rows_ = results[::2], results[1::2]
    assert [result.history.step.num for result in rows_] == list(range(1, 10))
    for iteration, (summary, result) in enumerate(zip(newest, rows_, strict=True), start=1):
        values = read_items(result.history.item)
        assert read_items(summary.summary.update) == values
        assert values.pop("_timestamp") == STARTED + iteration
        assert (values.pop("_step"), values.pop("training_iteration")) == (iteration, iteration)
        assert (values.pop("timesteps_total"), values.pop("time_total_s")) == (
            *(100 * iteration, 0.5 * iteration),
        )
        assert values == {"info/loss": 1 / iteration, "info/score": 1 - 1 / iteration}
    assert (end.HasField("exit"), end.exit.exit_code) == (True, 0)
    *_, failed = records(written("wandb", story.where.folder, "trial-2"))
    assert failed.exit.exit_code == 1


@pytest.mark.parametrize("width", [0, 1, 400, 2000])
def test_wandb_records_of_any_size_fit_into_its_blocks(width: int, tmp_path: Path) -> None:
    """Up to some that are longer than a block; each row is published by itself."""
    story = Story.create(tmp_path)
    story.begin()
    story.start(0, note="x" * (32768 - 200))
    file, seen = written("wandb", story.where.folder), 0
    for iteration in range(1, 40):
        wide: dict[str, Any] = {f"m{i}": i / 7 for i in range(width + iteration % 7)}
        story.close(0, Status.PAUSED, [row(0, iteration, **wide)])
        story.go_on(0)
        publish_with(trackers.find("wandb"), story, first=seen + 1)
        seen = len(story.records)
        *_, last, _ = records(file)
        assert last.history.step.num == iteration
        assert wide.items() <= read_items(last.history.item).items()
    assert differences("wandb", story.where) == []
    whole = file.read_bytes()
    file.unlink()
    publish_with(trackers.find("wandb"), story)
    assert file.read_bytes() == whole


class Receiver(BaseHTTPRequestHandler):
    """As much of a server of W&B as is asked when runs are sent to it."""

    configs: ClassVar[list[dict[str, Any]]] = []
    history: ClassVar[dict[int, dict[str, Any]]] = {}
    """Line → the row that was sent for it."""
    ends: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        is_packed = self.headers.get("Content-Encoding") == "gzip"
        asked = json.loads(gzip.decompress(raw) if is_packed else raw)
        if "query" not in asked:
            lines = asked.get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
            for place, line in enumerate(lines["content"], start=lines["offset"]):
                self.history[place] = json.loads(line)
            self.ends.extend([asked["exitcode"]] if asked.get("complete") else [])
            return self._answer({"exitcode": None, "limits": {}})
        self.configs.append(json.loads(asked["variables"]["config"]))
        project = {"id": "p", "name": "demo", "entity": {"id": "e", "name": "me"}}
        bucket = {"id": "b", "name": asked["variables"]["name"], "project": project}
        return self._answer({"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}})

    def _answer(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_words: object) -> None:
        """Nothing: a test is silent."""


@pytest.fixture
def receiver() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


WANDB_COMMAND = Path(sys.executable).with_name("wandb")


@pytest.mark.skipif(not WANDB_COMMAND.exists(), reason="wandb is not installed")
def test_wandb_itself_sends_each_row_once(tmp_path: Path, receiver: str) -> None:
    """The real command, to a server here: again after the trial has gone on, no row twice."""
    story = Story.create(tmp_path)
    story.begin()
    story.start(0)
    command = [str(WANDB_COMMAND), "sync", "--include-online", "--include-synced"]
    home = {**os.environ, "HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    server = {"WANDB_BASE_URL": receiver, "WANDB_API_KEY": "a" * 40}
    for first, last in ((1, 3), (4, 9)):
        story.close(0, Status.PAUSED, rows(0, first, last))
        story.go_on(0)
        publish_with(trackers.find("wandb"), story)
        folder = str(written("wandb", story.where.folder).parent)
        done = subprocess.run(
            [*command, folder],
            env={**home, **server},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert [Receiver.history[line]["_step"] for line in range(last)] == list(range(1, last + 1))
        assert len(Receiver.history) == last
    assert Receiver.configs[0]["lr"] == {"value": 0.001}
    assert Receiver.ends == [0, 0]


def test_odd_results_are_no_obstacle(name: str, tmp_path: Path) -> None:
    story = Story.create(tmp_path)
    story.begin()
    story.start(0, net="x" * 300, layers=10**400)
    odd = {"huge": 1e300, "whole": 10**400, 'ünïcode, "quoted"': -0.0, "half\udc80": 1}
    story.close(0, Status.PAUSED, [row(0, 1, timestamp=-1, timesteps_total=-3, **odd)])
    publish_with(trackers.find(name), story)
    publish_with(trackers.find(name), story)
    assert differences(name, story.where) == []
    if name == "tensorboard":
        *_, event = decoded(written(name, story.where.folder))
        values = {value.tag: value.simple_value for value in event.summary.value}
        assert (event.step, values["huge"], values["whole"]) == (1, math.inf, math.inf)


def test_a_sweep_writes_all_of_them_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sweeps.make(tmp_path, trials=3, trackers=list(FILES))
    sweeps.run(folder)
    assert {sent.missing for sent in sync.send(folder, pytest.fail, 60.0)} == {0}
    files = {path.name for path in (folder.logs / "trial-0").iterdir()}
    assert files == {"params.json", *FILES.values()}
    assert Here(capsys, folder.root)("verify", "demo")[0] == 0
    assert Ledger(folder.ledger).published("csv") == Ledger(folder.ledger).last
