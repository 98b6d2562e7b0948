"""A trial saved and continued elsewhere goes on bit for bit; what is damaged is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from kltune.errors import RunError
from kltune.metrics.record import StepMetrics
from kltune.spec.trial import TrialSpec
from kltune.trainer.bank import Bank


def spec() -> TrialSpec:
    """A trial with everything that a checkpoint must carry: a beta that moves, a seed, a rate."""
    return tiny.trial(
        seed=3, controller="proportional", target_kl=0.05, horizon=40, learning_rate=2e-2
    )


def steps(bank: Bank, count: int) -> list[StepMetrics]:
    return [metrics for _ in range(count) for metrics in bank.train_step()]


def without_time(metrics: StepMetrics) -> dict[str, float]:
    return {name: v for name, v in metrics.values.items() if not name.startswith("time/")}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint at step 2."""
    bank = tiny.bank(1)
    bank.admit(0, 7, spec(), None)
    steps(bank, 2)
    bank.save_checkpoint(0, tmp_path / "last")
    return tmp_path / "last"


def test_a_restored_trial_goes_on_bit_for_bit_in_another_slot_of_another_bank(
    tmp_path: Path,
) -> None:
    undisturbed = tiny.bank(1)
    undisturbed.admit(0, 7, spec(), None)
    steps(undisturbed, 5)
    undisturbed.save_checkpoint(0, tmp_path / "checkpoints" / "last")
    expected = steps(undisturbed, 5)
    assert len({m.beta for m in expected}) == 5, "beta must move"

    other = tiny.bank(3)
    assert other.admit(2, 7, spec(), tmp_path / "checkpoints" / "last") == 5
    got = steps(other, 5)
    for one, two in zip(expected, got, strict=True):
        assert (two.step, two.trial_number, two.beta) == (one.step, 7, one.beta)
        assert without_time(two) == without_time(one)
    assert torch.equal(other.parts.stack.flat_KP[2], undisturbed.parts.stack.flat_KP[0])
    assert torch.equal(
        other.parts.optimizer.exp_avg_sq_KP[2], undisturbed.parts.optimizer.exp_avg_sq_KP[0]
    )
    assert other.parts.optimizer.num_steps_K == [0, 0, 10]


def test_saving_changes_nothing(tmp_path: Path) -> None:
    watched, plain = tiny.bank(1), tiny.bank(1)
    for bank in (watched, plain):
        bank.admit(0, 7, spec(), None)
    for _ in range(3):
        watched.save_checkpoint(0, tmp_path / "last")
        watched.save_adapter(0, tmp_path / "best")
        assert without_time(steps(watched, 1)[0]) == without_time(steps(plain, 1)[0])


def test_a_new_attempt_keeps_its_own_trial_number(saved: Path) -> None:
    bank = tiny.bank(1)
    bank.admit(0, 11, spec(), saved)
    assert steps(bank, 1)[0].trial_number == 11


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def drop_key(path: Path) -> None:
    facts = json.loads(path.read_text(encoding="utf-8"))
    del facts["control"]
    path.write_text(json.dumps(facts), encoding="utf-8")


def drop_tensor(path: Path) -> None:
    tensors = load_file(path)
    del tensors["exp_avg"]
    save_file(tensors, path)


def shorten_moments(path: Path) -> None:
    tensors = load_file(path)
    tensors["exp_avg"] = tensors["exp_avg"][:-1].clone()
    save_file(tensors, path)


def bad_setting(path: Path) -> None:
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["setting"]["learning_rate"] = -1
    path.write_text(json.dumps(facts), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("slot.safetensors", truncate),
        ("slot.json", truncate),
        ("slot.safetensors", Path.unlink),
        ("slot.json", Path.unlink),
        ("slot.json", lambda p: p.write_text("[]", encoding="utf-8")),
        ("slot.json", drop_key),
        ("slot.json", bad_setting),
        ("slot.safetensors", drop_tensor),
        ("slot.safetensors", shorten_moments),
    ],
)
def test_a_damaged_checkpoint_is_a_run_error_that_names_it_and_changes_nothing(
    saved: Path, name: str, damage: object
) -> None:
    damage(saved / name)  # pyright: ignore[reportCallIssue]
    bank = tiny.bank(1)
    with pytest.raises(RunError, match=str(saved)):
        bank.admit(0, 7, spec(), saved)
    assert bank.free_slots() == (0,)
    assert not bank.parts.stack.flat_KP.any()
    assert not bank.parts.optimizer.exp_avg_KP.any()


def test_a_checkpoint_of_another_schema_is_refused(saved: Path) -> None:
    facts = json.loads((saved / "slot.json").read_text(encoding="utf-8"))
    (saved / "slot.json").write_text(json.dumps({**facts, "schema": 99}), encoding="utf-8")
    with pytest.raises(RunError, match="has schema 99, this version reads 2"):
        tiny.bank(1).admit(0, 7, spec(), saved)


def test_a_checkpoint_of_the_first_schema_goes_on(saved: Path) -> None:
    facts = json.loads((saved / "slot.json").read_text(encoding="utf-8"))
    control = facts.pop("control")
    del facts["scores"]
    old = {**facts, "schema": 1, "beta": control["beta"], "optimizer_steps": 2}
    banks = [tiny.bank(1), tiny.bank(1)]
    assert banks[0].admit(0, 7, spec(), saved) == 2
    (saved / "slot.json").write_text(json.dumps(old), encoding="utf-8")
    assert banks[1].admit(0, 7, spec(), saved) == 2
    for one, two in zip(steps(banks[0], 3), steps(banks[1], 3), strict=True):
        assert without_time(one) == without_time(two)


def everything() -> dict[str, object]:
    """A trainer whose slots have critics, moving references and running moments."""
    return {
        "algorithm": "ppo",
        "epochs": 2,
        "minibatches": 2,
        "reward": {"normalize": "running"},
        "reference": {"every": 2, "mixture": 0.5},
    }


def test_critics_moving_references_and_running_moments_go_on_bit_for_bit(tmp_path: Path) -> None:
    undisturbed, other = tiny.bank(1, **everything()), tiny.bank(2, **everything())
    undisturbed.admit(0, 7, spec(), None)
    steps(undisturbed, 3)
    undisturbed.save_checkpoint(0, tmp_path / "last")
    assert other.admit(1, 7, spec(), tmp_path / "last") == 3
    expected, got = steps(undisturbed, 3), steps(other, 3)
    for one, two in zip(expected, got, strict=True):
        assert without_time(two) == without_time(one)
    one, two = undisturbed.parts, other.parts
    for ours, theirs in zip(two.rows.of(1), one.rows.of(0), strict=True):
        assert torch.equal(two.stack.flat_KP[ours], one.stack.flat_KP[theirs])
    assert one.critic is not None
    assert two.critic is not None
    assert torch.equal(two.critic.head_KH[1], one.critic.head_KH[0])
    assert one.critic.head_KH.any()


def test_a_checkpoint_without_a_critic_does_not_start_one(saved: Path) -> None:
    with pytest.raises(RunError, match=r"it holds adapter, .* this study needs adapter, critic"):
        tiny.bank(1, algorithm="ppo").admit(0, 7, spec(), saved)


def test_a_checkpoint_of_another_adapter_shape_is_refused(saved: Path) -> None:
    model = tiny.loaded()
    wider = tiny.MODEL.model_copy(update={"rank": 8})
    bank = Bank(model, tiny.task_data(model), tiny.settings(), wider, 1)
    with pytest.raises(RunError, match="adapter holds 3,712 numbers, this study's has 7,424"):
        bank.admit(0, 7, spec(), saved)


def test_no_checkpoint_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="can't be read"):
        tiny.bank(1).admit(0, 7, spec(), tmp_path / "last")


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize(
    "point", ["mkdir", "save_file", "write_text", "first rename", "second rename", "rmtree"]
)
def test_a_crash_at_any_point_of_a_save_leaves_the_old_or_the_new_checkpoint(
    saved: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    bank = tiny.bank(1)
    bank.admit(0, 7, spec(), saved)
    steps(bank, 1)
    with monkeypatch.context() as patch:
        renames = 0
        rename = Path.rename

        def crash(*_args: object, **_kwargs: object) -> None:
            raise Crash

        def counted(self: Path, target: Path) -> Path:
            nonlocal renames
            renames += 1
            if renames == {"first rename": 1, "second rename": 2}[point]:
                raise Crash
            return rename(self, target)

        if point == "mkdir":
            patch.setattr(Path, "mkdir", crash)
        elif point == "save_file":
            patch.setattr("kltune.trainer.checkpoint.save_file", crash)
        elif point == "write_text":
            patch.setattr(Path, "write_text", crash)
        elif point == "rmtree":
            monkeypatch.setattr(
                "kltune.trainer.checkpoint.remove", lambda p: crash() if p.exists() else None
            )
        else:
            patch.setattr(Path, "rename", counted)
        with pytest.raises(Crash):
            bank.save_checkpoint(0, saved)
    monkeypatch.undo()
    restored = tiny.bank(1)
    assert restored.admit(0, 7, spec(), saved) == (3 if point == "rmtree" else 2)
    # and the next save works and is the one that is read
    steps(bank, 1)
    bank.save_checkpoint(0, saved)
    assert tiny.bank(1).admit(0, 7, spec(), saved) == 4
    assert [p.name for p in saved.parent.iterdir()] == ["last"]


def test_an_adapter_is_saved_by_pefts_names_and_shapes(tmp_path: Path) -> None:
    bank = tiny.bank(2)
    bank.admit(1, 4, spec(), None)
    steps(bank, 1)
    bank.save_adapter(1, tmp_path / "best")
    tensors = load_file(tmp_path / "best" / "adapter.safetensors")
    linear = {n: m for n, m in tiny.llama().model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert len(linear) == 14
    expected = {}
    for name, layer in linear.items():
        expected[f"{name}.lora_A.weight"] = (4, layer.in_features)
        expected[f"{name}.lora_B.weight"] = (layer.out_features, 4)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == expected
    facts = json.loads((tmp_path / "best" / "adapter.json").read_text(encoding="utf-8"))
    assert (facts["schema"], facts["trial"], facts["step"], facts["rank"], facts["alpha"]) == (
        1,
        4,
        1,
        4,
        8,
    )
    assert facts["targets"] == list(linear)


def test_the_saved_adapter_on_the_plain_model_is_the_policy(tmp_path: Path) -> None:
    bank = tiny.bank(1)
    bank.admit(0, 0, spec(), None)
    steps(bank, 3)
    bank.save_adapter(0, tmp_path / "best")
    tensors = load_file(tmp_path / "best" / "adapter.safetensors")
    facts = json.loads((tmp_path / "best" / "adapter.json").read_text(encoding="utf-8"))
    plain = tiny.llama().eval()
    ids = torch.tensor([[2, 3, 4, 5]])
    with torch.no_grad():
        for name in facts["targets"]:
            update = tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"]
            plain.model.get_submodule(name).weight.add_(facts["alpha"] / facts["rank"] * update)
        expected = plain(input_ids=ids).logits
        with bank.parts.stack.use(bank.parts.stack.view([0])):
            got = bank.parts.loaded.model(input_ids=ids).logits
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=2e-5)
