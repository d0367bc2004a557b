"""Two real processes on gloo: the same result as one, the same bits after a kill, an end instead of a hang."""

import gc
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import InputError
from clearhead.run import MODEL, OPTIMIZER, Run
from clearhead.training import distributed, session
from clearhead.training.loop import PRECISION, Loop, Objective
from clearhead.training.session import train
from clearhead.training.validate import evaluate
from tests.training import small

LAST = Path("checkpoints/step_00000012")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def processes(count: int, work: Callable[[int], object]) -> list[int]:
    """Run `work(rank)` in so many processes, joined as torchrun would join them; minus the signal, or the status."""
    port, children = free_port(), []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            status = 3
            try:
                address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank)}
                os.environ.update({**address, "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)})
                work(rank)
                status = 0
            except Exception as error:
                print(f"rank {rank}: {error}", file=sys.stderr)
            finally:
                os._exit(status)
        children.append(child)
    ends: dict[int, int] = {}
    grace = None
    while len(ends) < count:
        for child in set(children) - set(ends):
            if (found := os.waitpid(child, os.WNOHANG))[0]:
                ends[child] = os.waitstatus_to_exitcode(found[1])
        if any(ends.values()) and grace is None:
            grace = time.monotonic() + 30  # long enough to notice that a neighbour is gone
        if grace is not None and time.monotonic() > grace:
            for child in set(children) - set(ends):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [ends[child] for child in children]


def finish(folder: Path, **changes: object) -> None:
    train(small.recipe(**{"steps": 12, "epsilon": 1e-6, **changes}), folder, quiet=True)  # type: ignore[arg-type]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    finish(folder, dropout=0.0)
    return folder


def assert_same(one: Path, two: Path) -> None:
    """Within rounding, which grows from update to update. The bias of the keys has no gradient but rounding, because
    the softmax does not see it, and Adam makes full steps of that: it is left out."""
    ours, theirs = Run(one).weights("latest"), Run(two).weights("latest")
    for name, tensor in theirs.items():
        if name.endswith("key.bias"):
            continue
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_two_processes_do_what_one_does(parallel: str, accumulate: int, alone: Path, tmp_path: Path) -> None:
    changes = {"dropout": 0.0, "parallel": parallel, "accumulate": accumulate}
    assert processes(2, lambda rank: finish(tmp_path, **changes)) == [0, 0]
    assert_same(tmp_path, alone)
    logs = [(folder / "metrics.jsonl").read_text().count("\n") for folder in (tmp_path, alone)]
    assert logs[0] == logs[1]  # only the first rank writes


@pytest.mark.parametrize("native", [False, True])
def test_auto_is_bfloat16_where_the_processor_has_it(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "native_bfloat16", lambda: native)
    cpu = torch.device("cpu")
    assert distributed.pick_precision("auto", cpu) == ("bfloat16" if native else "float32")
    assert [distributed.pick_precision(name, cpu) for name in PRECISION] == list(PRECISION)


def test_the_first_rank_speaks_for_all() -> None:
    def work(rank: int) -> None:
        with distributed.gathered("cpu") as ranks:
            assert distributed.broadcast({"from": rank}, ranks) == {"from": 0}

    assert processes(2, work) == [0, 0]


def test_ranks_validate_every_batch_once() -> None:
    """Where batches do not divide evenly, a rank without one computes another again, which must not count."""
    data = small.splits().validation
    batches = data.plan(0, 0, 40)[:3]
    assert len(batches) == 3
    torch.manual_seed(0)
    objective = Objective(small.model(), 0.1, torch.float32)
    alone = evaluate(objective, data, batches, distributed.Ranks())

    def work(rank: int) -> None:
        with distributed.gathered("cpu") as ranks:
            assert evaluate(objective, data, batches, ranks) == pytest.approx(alone, rel=1e-12)

    assert processes(2, work) == [0, 0]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_muon_sees_whole_matrices_and_shares_them_out(
    parallel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in bfloat16, its choice where the CPU has that, sums in another order differ by more than is compared here
    monkeypatch.setattr("clearhead.training.muon.pick_precision", lambda *_: "float32")
    changes = {"dropout": 0.0, "optimizer": "muon", "weight_decay": 0.1}
    finish(tmp_path / "one", **changes)
    assert processes(2, lambda rank: finish(tmp_path / "two", **changes, parallel=parallel)) == [0, 0]
    assert_same(tmp_path / "two", tmp_path / "one")


@pytest.mark.parametrize(
    ("first", "then"), [(("ddp", 2), ("ddp", 1)), (("fsdp", 2), ("ddp", 1)), (("ddp", 1), ("fsdp", 2))]
)
def test_a_run_goes_on_with_another_number_of_processes(
    first: tuple[str, int], then: tuple[str, int], alone: Path, tmp_path: Path
) -> None:
    def train_with(changes: dict[str, Any], rank: int) -> None:
        finish(tmp_path, **changes)

    for steps, (parallel, count) in ((6, first), (12, then)):
        changes = {"dropout": 0.0, "parallel": parallel, "steps": steps}
        assert processes(count, partial(train_with, changes)) == [0] * count
    assert_same(tmp_path, alone)


def test_dropout_differs_between_ranks(tmp_path: Path) -> None:
    """Each rank has examples of its own, and must have random numbers of its own."""

    def work(rank: int) -> None:
        with distributed.gathered("cpu") as ranks:
            Loop(small.model(dropout=0.3), small.splits().train, small.recipe().training, ranks).one_update()
        (tmp_path / str(rank)).write_text(str(torch.initial_seed()))

    assert processes(2, work) == [0, 0]
    assert (tmp_path / "0").read_text() != (tmp_path / "1").read_text()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_killed_and_resumed_end_in_the_same_bits(parallel: str, tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert processes(2, lambda rank: finish(straight, parallel=parallel)) == [0, 0]

    def killed(rank: int) -> None:
        real = Loop.one_update

        def update(loop: Loop) -> None:
            if loop.progress.step == 6 and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            real(loop)

        Loop.one_update = update  # type: ignore[method-assign, assignment]
        finish(broken, parallel=parallel)

    ends = processes(2, killed)
    assert ends[1] == -signal.SIGKILL
    assert ends[0] == 3, "the survivor must end with an error, not wait for ever"
    assert (broken / "latest").read_text() == "step_00000004\n"

    def resumed(rank: int) -> None:
        real = session.restore_optimizers

        def restore(loop: Loop, saved: dict[str, torch.Tensor]) -> None:
            real(loop, dict(sorted(saved.items(), reverse=rank == 1)))  # a file has no order that ranks could rely on

        session.restore_optimizers = restore
        finish(broken, parallel=parallel)

    assert processes(2, resumed) == [0, 0]
    for file in (MODEL, OPTIMIZER):
        assert digest(broken / LAST / file) == digest(straight / LAST / file)


@pytest.mark.long
def test_a_group_outlives_the_error_that_broke_it(tmp_path: Path) -> None:
    """If it died with the frames of the error, inside DDP's destructor, it would now and then wait there for ever."""

    def threads() -> list[str]:
        return [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]

    def work(rank: int) -> None:
        import torch._dynamo  # noqa: F401 (imported first by DDP itself, it holds the group by accident)

        def fail(loop: Loop) -> None:
            raise ZeroDivisionError

        Loop.one_update = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(ZeroDivisionError):
            finish(tmp_path)
        gc.collect()
        assert "pt_gloo_runloop\n" in threads()

    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are listed in /proc")
    assert processes(2, work) == [0, 0]


def test_a_signal_to_one_rank_stops_both_at_the_same_step(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        real = Loop.one_update

        def update(loop: Loop) -> None:
            real(loop)
            if loop.progress.step == 5 and rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)

        Loop.one_update = update  # type: ignore[method-assign, assignment]
        finish(tmp_path)

    assert processes(2, work) == [0, 0]
    assert (tmp_path / "latest").read_text() == "step_00000005\n"


@pytest.mark.long
def test_a_second_attempt_does_not_meet_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun keeps one store through its restarts; a worker that is early must not call a dead one's address."""
    port = int(free_port())
    store = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")

    def join(rank: int) -> None:
        os.environ["MASTER_PORT"] = str(port)
        time.sleep(2 * rank)
        with distributed.gathered("cpu") as ranks:
            assert ranks.sum(1.0) == [2.0]

    for attempt in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        assert processes(2, join) == [0, 0]
    assert store.num_keys() > 0  # alive until here, as torchrun's is


@pytest.mark.long
def test_torchrun_brings_a_killed_worker_back(tmp_path: Path) -> None:
    """The command of the documentation, and one worker killed from outside while it trains."""
    recipe = small.write_recipe(tmp_path / "small.toml", steps=200, checkpoint_every=10, validate_every=100)
    run, command = tmp_path / "run", [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "--monitor-interval", "0.2", "--master-port", free_port()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [*command, "-m", "clearhead", "train", str(recipe), "--into", str(run)],
        env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (run / "latest").is_file() and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True).stdout.split()
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    _, shown = job.communicate(timeout=180)
    assert job.returncode == 0, shown
    assert "resuming" in (run / "train.log").read_text()
    assert (run / "latest").read_text() == "step_00000200\n"


def test_a_rank_takes_the_card_of_its_number_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as that can be seen without a card: the group is not joined."""
    taken: list[torch.device] = []

    def no_group(*given: object, **named: object) -> None:
        raise InputError("not joined")

    monkeypatch.setattr(distributed, "pick_device", torch.device)
    monkeypatch.setattr(distributed, "rendezvous", no_group)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="not joined"), distributed.gathered("cuda"):
        pass
    assert taken == [torch.device("cuda", 1)]


def test_a_group_shards_only_if_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        def __init__(self, *given: object) -> None: ...

    monkeypatch.setattr(distributed, "rendezvous", lambda *given, **named: iter([(Store(), 0, 2)]))
    monkeypatch.setattr(distributed.dist, "PrefixStore", Store)
    monkeypatch.setattr(distributed, "JOINED", [])
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(distributed.dist, name, lambda *given, **named: None)
    monkeypatch.setattr(distributed.dist, "get_rank", lambda: 0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for parallel in ("ddp", "fsdp"):
        with distributed.gathered("cpu", parallel) as ranks:
            assert ranks.parallel == parallel
