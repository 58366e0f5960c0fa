"""The run directory: committed rows, broken files, strangers' files, locks."""

import fcntl
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests import children
from tracer.files import disk
from tracer.files.disk import append_line, read_json, read_lines, write_bytes
from tracer.store import (
    About,
    BrokenSnapshot,
    NewerFormat,
    NotARun,
    RunInUse,
    RunWriter,
    broken_runs,
    list_runs,
    open_run,
    resolve,
)
from tracer.store.layout import Lock, is_locked, steps_in


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, NotARun, "has no run.json"),
        ("{ not json", NotARun, "not readable JSON"),
        ("[]", NotARun, "'format'"),
        ('{"config": {}}', NotARun, "'format'"),
        ('{"format": 99}', NewerFormat, "upgrade manyeyes"),
        ('{"format": 1, "status": "finished"}', NotARun, "has no config, created"),
        ("\xff\xfe", NotARun, "not readable JSON"),
    ],
)
def test_what_is_not_a_run(tmp_path, content, error, words):
    if content is not None:
        (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(error, match=words):
        open_run(tmp_path)
    assert list_runs(tmp_path.parent) == []


def test_broken_runs_are_named_beside_those_that_open(run):
    root = run.dir.parent
    for name, content in (("cut", "{ not json"), ("later", '{"format": 99}'), ("no-run", None)):
        (root / name).mkdir()
        if content is not None:
            (root / name / "run.json").write_text(content)
    assert [one.name for one in list_runs(root)] == ["r"]
    reasons = broken_runs(root)
    assert list(reasons) == ["cut", "later"]
    assert "not readable JSON" in reasons["cut"] and "upgrade manyeyes" in reasons["later"]


def test_about_a_run_of_ours(run):
    assert run.about == About(
        "trained", n_ctx=64, d_vocab=65, period=16, steps=4, row=64, batch_tokens=4 * 64, bos=0, rebuilds=True
    )
    setting = run.about.setting
    assert setting is not None
    assert (setting.n_ctx, setting.period, setting.d_vocab, setting.causal) == (64, 16, 65, True)


FOREIGN = {
    "format": 2, "created": "2026-01-01T00:00:00+00:00", "kind": "watched", "n_params": 5, "status": "finished",
    "step": 3, "class": "TheirModel",
    "layers": [{"name": "enc.0.attn", "kind": "self", "causal": False, "n_heads": 2},
               {"name": "dec.0.cross", "kind": "cross", "causal": False, "n_heads": 2},
               {"name": "dec.0.attn", "kind": "self", "causal": True, "n_heads": 2}],
}  # fmt: skip
FACTS: Any = {"n_ctx": 16, "d_vocab": 9, "period": 7, "steps": 3, "row": 12, "batch_tokens": 32, "bos": 1}


def foreign(directory: Path, **facts):
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps(FOREIGN | facts))
    return open_run(directory)


def test_about_a_run_of_another_model(tmp_path):
    layers, causal = ("enc.0.attn", "dec.0.cross (cross)", "dec.0.attn"), (False, False, True)
    theirs: Any = {"layers": layers, "causal": causal, "author": "TheirModel"}
    nothing_known = About(
        "watched", n_ctx=None, d_vocab=None, period=None, steps=None, row=None, batch_tokens=None, bos=None,
        rebuilds=False, **theirs,
    )  # fmt: skip
    assert foreign(tmp_path / "a").about == nothing_known and nothing_known.setting is None
    everything = About("opened", **FACTS, rebuilds=True, **theirs)
    assert foreign(tmp_path / "b", kind="opened", huggingface={"model_type": "gpt2"}, **FACTS).about == everything
    setting = everything.setting
    assert setting is not None and (setting.n_ctx, setting.period, setting.causal) == (12, 7, False)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("model.layers.0.self_attn", "model.layers.1.self_attn"), ""),
        (("first", "second"), ""),
        (("layers.3.attn", "layers.7.attn"), "L0 is layers.3, L1 is layers.7"),
        (("h.0.attn", "h.0.attn"), "L0 is h.0, L1 is h.0"),
        (("h2.1.0.attn", "h2.1.1.attn"), "L0 is h2.1, L1 is h2.1"),
        (tuple(f"b.{n}.a" for n in (1, 3, 5, 7, 9)), "L0 is b.1, L1 is b.3, L2 is b.5, …, L4 is b.9"),
    ],
)
def test_numbers_of_layers_that_are_not_their_authors_are_said(tmp_path, names, said):
    layers = [{"name": name, "kind": "self", "causal": True, "n_heads": 2} for name in names]
    assert foreign(tmp_path / "a", layers=layers).about.numbering == said


def test_why_not(run, tmp_path):
    """Empty where it can be had; a model that cannot be made again, or whose weights are not kept, reads no prompt."""
    assert [run.why_not(what) for what in ("prompts", "recipe", "resume", "entropy_bound", "attribution")] == [""] * 5
    unknown = foreign(tmp_path / "a")
    assert unknown.why_not("prompts") == "The code of this model is not in the run" and not unknown.why_not("training")
    bare = foreign(tmp_path / "b", kind="opened", huggingface={"model_type": "gpt2"})
    assert bare.why_not("prompts") == "This run keeps no weights"
    assert not bare.can("prompts") and bare.can("heads")
    assert "nothing was trained here" in bare.why_not("training")
    lock = Lock(bare.dir)
    assert bare.why_not("prompts") == ""  # a training that goes on will have some
    lock.release()
    assert bare.why_not("prompts") == "This run keeps no weights"
    (bare.dir / "snapshots").mkdir()
    (bare.dir / "snapshots" / "000003.safetensors").touch()
    assert bare.why_not("prompts") == "" and bare.why_not("composition") == "" and bare.why_not("recipe")


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"layers": None}, "layers=None"),
        ({"layers": [{}]}, r"layers\.0\.name"),
        ({"layers": ["attn"]}, r"layers\.0='attn'"),
        ({"status": "sleeping"}, "status='sleeping'"),
        ({"n_params": 10**400}, r"n_params=1000.* \.\.\."),
        ({"preset": []}, r"preset=\[\]"),
        ({"step": "3"}, "step='3'"),
        ({"step": True}, "step=True"),
        ({"pid": -1}, "pid=-1"),
        ({"sources": {"x": {"path": "m"}}}, "sources"),
        ({"parent": {"run": "r", "step": -2}}, r"parent\.step=-2"),
        ({"created": "x" * 100}, "created="),
        ({"format": -3}, "format -3, which there is not"),
        ({"format": True}, "no 'format' number"),
    ],
)
def test_what_run_json_cannot_say_is_named(tmp_path, facts, named):
    with pytest.raises(NotARun, match=named):
        foreign(tmp_path / "a", **facts)
    (reason,) = broken_runs(tmp_path).values()
    assert len(reason) < 1000 and list_runs(tmp_path) == []


def test_a_run_of_another_model_has_no_config_of_ours(tmp_path):
    run = foreign(tmp_path / "a", sources={"20": {"path": "m"}, "3": {"path": "m"}})
    assert run.steps == [3, 20], "weights that stayed where they were"
    with pytest.raises(NotARun, match="its configuration is its author's"):
        run.config  # noqa: B018 - the property raises
    with pytest.raises(ValueError, match="recorded from a TheirModel, whose code is not in the run"):
        run.model(20)


def test_a_missing_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotARun, match="does not exist"):
        open_run("nowhere")


def test_names_and_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert str(resolve("demo-0")) == "checkpoints/demo-0"
    assert [str(resolve(name)) for name in ("a/b", ".", "..")] == ["a/b", ".", ".."]
    assert str(resolve("./demo-0")) == "demo-0", "a path, said to be one"
    assert str(resolve("here")) == "here"
    (tmp_path / "checkpoints" / "here").mkdir(parents=True)
    assert str(resolve("here")) == "here"
    (tmp_path / "checkpoints" / "here" / "run.json").touch()
    assert str(resolve("here")) == "checkpoints/here", "a folder that merely has a run's name hides no run"
    (tmp_path / "here" / "run.json").touch()
    assert str(resolve("here")) == "here"
    assert resolve(tmp_path / "x") == tmp_path / "x"


@pytest.mark.parametrize("size", [0, 7, 1000])
def test_a_cut_off_snapshot_names_the_others(run, size):
    path = run.dir / "snapshots" / "000002.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BrokenSnapshot, match=r"cut off or damaged; other steps here: 0, 4"):
        run.model(2)
    assert run.model(4).config.d_model == 16


def test_a_snapshot_of_another_model(run):
    (run.dir / "snapshots" / "000002.safetensors").write_bytes((run.dir / "resume" / "000004.safetensors").read_bytes())
    with pytest.raises(BrokenSnapshot, match="does not fit"):
        run.model(2)


def test_a_half_written_file_is_not_a_snapshot(run):
    (run.dir / "snapshots" / ".000003.safetensors.99.partial").write_bytes(b"half")
    assert run.steps == [0, 2, 4]


def test_a_step_without_snapshot_names_the_nearest(run):
    with pytest.raises(ValueError, match=r"no snapshot of step 3; the nearest is 2"):
        run.model(3)


def test_a_pickle_in_place_of_a_snapshot_never_runs(run, tmp_path):
    """A file from a stranger that would execute code when unpickled."""
    marker = tmp_path / "executed"
    evil = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    (run.dir / "snapshots" / "000002.safetensors").write_bytes(evil)
    with pytest.raises(BrokenSnapshot):
        run.model(2)
    assert not marker.exists()


def test_an_unknown_field_in_run_json_is_named(run):
    meta = run.meta
    meta["config"]["model"]["n_eyes"] = 9
    (run.dir / "run.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="no field n_eyes"):
        open_run(run.dir).config  # noqa: B018 - the property raises


def test_models_are_new_objects(run):
    first, second = run.model(2), run.model(2)
    assert first is not second and first.embed.W_E.data_ptr() != second.embed.W_E.data_ptr()
    assert not first.training


def test_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"step": 1, "text": "é\n"})
    with path.open("a") as f:
        f.write('{"step": 2, "te')
    assert read_lines(path, {}) == [{"step": 1, "text": "é\n"}]
    assert read_lines(tmp_path / "none.jsonl", {}) == []


def test_lines_of_other_things_are_left_out(run):
    known = {"step": 1, "temperature": 0, "prompt": "a", "text": "b"}
    lines = [known, {"step": []}, {"step": 2}, {**known, "text": None}, [], 3]
    for name in ("log.jsonl", "samples.jsonl"):
        (run.dir / name).write_text("\n".join(map(json.dumps, lines)))
    assert run.samples() == [known] and [row["step"] for row in run.log()] == [1, 2, 1]


def test_a_line_after_a_torn_one_is_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"step": 1})
    with path.open("a") as f:
        f.write('{"step": 2, "te')
    append_line(path, {"step": 3})
    assert [row["step"] for row in read_lines(path, {})] == [1, 3]


def test_a_line_is_strict_json_whatever_the_text(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"loss": float("nan"), "entropy": {"0": [1.0, float("inf")]}, "text": "a\u2028b\x85c\x0cd\re"})
    line = path.read_bytes().decode()
    assert "NaN" not in line and "Infinity" not in line
    assert read_lines(path, {}) == [{"loss": None, "entropy": {"0": [1.0, None]}, "text": "a\u2028b\x85c\x0cd\re"}]


def test_write_bytes_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "f"
    write_bytes(path, b"old")
    with pytest.raises(TypeError):
        write_bytes(path, "not bytes")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["f"]


def test_what_was_not_written_whole_gets_no_name_with_the_rest_of_its_batch(tmp_path):
    batch = disk.Batch()
    write_bytes(tmp_path / "chunk", b"old")
    with pytest.raises(TypeError):
        batch.stage(tmp_path / "chunk", "not bytes")
    batch.stage(tmp_path / "zarr.json", b"new")  # what a writer that is closed after a full disk still writes
    batch.commit()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"chunk": b"old", "zarr.json": b"new"}


def test_threads_that_write_the_same_file_do_not_share_a_place(tmp_path):
    one, other = disk.Batch(), disk.Batch()
    for batch, content in ((one, b"1"), (other, b"2"), (one, b"3")):
        batch.stage(tmp_path / "note", content)
    one.commit()
    assert (tmp_path / "note").read_bytes() == b"3"
    other.commit()
    assert (tmp_path / "note").read_bytes() == b"2" and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_grows_while_it_is_opened_is_read_whole(tmp_path, monkeypatch):
    path, regular = tmp_path / "run.json", disk.regular
    write_bytes(path, b'{"step": 1}')

    def replaced(*arguments):
        size = regular(*arguments)
        write_bytes(path, b'{"step": 1000000}')  # a training's next record, between the look and the reading
        return size

    monkeypatch.setattr(disk, "regular", replaced)
    assert read_json(path, tmp_path) == {"step": 1_000_000}


def test_steps_in_reads_only_complete_names(tmp_path):
    for name in ("000010.safetensors", "000002.safetensors", "x.safetensors", "000003.partial"):
        (tmp_path / name).touch()
    assert steps_in(tmp_path) == [2, 10]


HOLD = """
import sys, time
from pathlib import Path
from tracer.store.layout import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_lives_as_long_as_its_process(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = children.start(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert is_locked(tmp_path)
    with pytest.raises(RunInUse, match="another process"):
        Lock(tmp_path)
    process.kill()
    process.communicate()
    assert not is_locked(tmp_path)
    Lock(tmp_path).release()


def test_readers_never_keep_a_writer_out(tmp_path):
    """The dashboard asks every second or two whether a run is live; a trainer that starts then must get the lock."""
    Lock(tmp_path).release()
    done = threading.Event()

    def ask():
        while not done.is_set():
            is_locked(tmp_path)

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(100):
            Lock(tmp_path).release()
    finally:
        done.set()
        for reader in readers:
            reader.join()


def test_a_writer_waits_for_a_reader_that_is_held_up(tmp_path):
    """On a busy machine a reader may be stopped between taking and letting go."""
    Lock(tmp_path).release()
    with (tmp_path / "lock").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        later = threading.Timer(0.5, fcntl.flock, (reader, fcntl.LOCK_UN))
        later.start()
        Lock(tmp_path).release()
        later.join()


def test_a_start_that_failed_lets_go_of_the_run(run):
    """Its process may live on for days, as that of a notebook does."""
    swept = Lock(run.dir, "effects.lock", busy="swept")
    with pytest.raises(RunInUse, match="swept"):
        RunWriter.create(run.dir, run.meta, None, overwrite=True)
    swept.release()
    assert not run.live
    (run.dir / "trace.zarr" / "zarr.json").write_text("{}")
    with pytest.raises(disk.Damaged):
        RunWriter.reopen(run)
    assert not run.live


def test_a_run_that_cannot_be_written_can_be_read(run):
    """Another person's, or on read-only media; permissions do not bind root, for whom this shows nothing."""
    for path in (run.dir / "lock", run.dir):
        path.chmod(0o555)
    try:
        assert run.status == "finished" and not run.live and run.trace["step"].size == 4
    finally:
        run.dir.chmod(0o755)


DOUBLE = {"type": "Replace", "pattern": {"String": "1"}, "content": "11"}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"padding": {"strategy": {"Fixed": 200_000_000_000}, "direction": "Right", "pad_to_multiple_of": None,
                      "pad_id": 0, "pad_type_id": 0, "pad_token": "<|bos|>"}}, False),
        ({"truncation": {"max_length": 1, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 7}}, True),
        ({"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Sequence", "normalizers": [{**DOUBLE, "pattern": {"Regex": ""}, "content": "a"}] * 7}]}}, True),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "1" * 16}] * 7}}, True),
        ({"post_processor": {"type": "TemplateProcessing", "pair": [], "special_tokens": {},
                             "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 65}}, True),
        ({"post_processor": {"type": "TemplateProcessing", "pair": [], "special_tokens": {},
                             "single": [{"Sequence": {"id": "A", "type_id": 0}}]}}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 7},
          "post_processor": {"type": "TemplateProcessing", "single": 5, "pair": None}}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}}, False),
    ],
)  # fmt: skip
def test_a_strangers_tokenizer_neither_fills_memory_nor_cuts_a_prompt(run, changes, refused):
    path = run.dir / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    meta = json.loads((run.dir / "run.json").read_text())
    meta.pop("digests")
    (run.dir / "run.json").write_text(json.dumps(meta))
    if refused:
        with pytest.raises(NotARun, match="over 64 times as long"):
            run.tokenizer.encode("1 2 3 1")
    else:
        assert run.tokenizer.encode("1 2 3 1").ids == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("part", "name", "words"),
    [
        ("tokenizer", "tokenizer.json", "cut off, damaged or refused"),
        ("trace", "trace.zarr/zarr.json", "the snapshots are untouched"),
    ],
)
def test_a_damaged_file_is_named(run, part, name, words):
    (run.dir / name).write_text("{")
    with pytest.raises(NotARun, match=f"cannot be read.*{words}"):
        getattr(run, part)
