"""Healthy training runs that a nervous doctor would accuse."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tests.zoo import ending, healthy, tasks
from tests.zoo.models import Classifier, FlashAttention, LectureAttention, MiniGPT, MultiheadBlock, TorchLM, gpt2, llama


@healthy("The data are a noisy Markov chain; the loss reaches its entropy early and stays there for 300 updates.")
def markov_at_its_floor(folder: Path) -> Path:
    torch.manual_seed(1)
    matrix, draw = tasks.chain(16, 1.0, 1), tasks.seeded(2)
    held_out = tasks.walks(matrix, 64, 33, tasks.seeded(3))
    model = MiniGPT(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10, held_out=(held_out[:, :-1], held_out[:, 1:]))
    losses = []
    for _ in range(400):
        ids = tasks.walks(matrix, 16, 33, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses[:150]) < tasks.floor(matrix) + 0.06 and ending(losses) < tasks.floor(matrix) + 0.04
    return folder


@healthy("Tokens are drawn one by one from fixed frequencies: once these are known, nothing is left to learn.")
def unigram_noise(folder: Path) -> Path:
    torch.manual_seed(2)
    frequencies = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01])
    model = TorchLM(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        ids = torch.multinomial(frequencies.expand(16, -1), 33, replacement=True)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses, 50) < -float((frequencies * frequencies.log()).sum()) + 0.02
    return folder


@healthy("A trained model is fine-tuned with a learning rate of 1e-5: its loss is low at the start and hardly moves.")
def tiny_rate_fine_tuning(folder: Path) -> Path:
    torch.manual_seed(3)
    matrix, draw = tasks.chain(16, 2.0, 4), tasks.seeded(5)
    model = gpt2(16)

    def train(steps: int, lr: float, recorder: Any = None) -> list[float]:
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
        for _ in range(steps):
            ids = tasks.walks(matrix, 16, 32, draw)
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if recorder:
                recorder.step(loss)
            losses.append(loss.item())
        return losses

    train(300, 3e-3)
    with tracer.watch(model, run=folder, every=10) as recorder:
        losses = train(200, 1e-5, recorder)
    assert ending(losses) < tasks.floor(matrix) + 0.05
    return folder


class LoRA(nn.Module):
    """A frozen linear map and what is learnt beside it: low-rank, and zero at the start."""

    def __init__(self, frozen: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


@healthy("Low-rank adapters are trained on a second chain; all else is frozen on purpose.")
def lora_on_a_frozen_backbone(folder: Path) -> Path:
    torch.manual_seed(4)
    draw = tasks.seeded(6)
    model = MiniGPT(12)

    def train(matrix: Tensor, steps: int, lr: float, recorder: Any = None) -> list[float]:
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer, losses = torch.optim.AdamW(trainable, lr=lr), []
        for _ in range(steps):
            ids = tasks.walks(matrix, 16, 33, draw)
            _, loss = model(ids[:, :-1], ids[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if recorder:
                recorder.step(loss)
            losses.append(loss.item())
        return losses

    train(tasks.chain(12, 2.0, 7), 200, 3e-3)
    model.requires_grad_(False)
    for block in model.blocks:
        attn: Any = block.attn
        attn.q_proj, attn.v_proj, attn.o_proj = LoRA(attn.q_proj), LoRA(attn.v_proj), LoRA(attn.o_proj)
    with tracer.watch(model, run=folder, every=10) as recorder:
        losses = train(tasks.chain(12, 2.0, 8), 300, 1e-2, recorder)
    assert ending(losses) < 0.6 * losses[0]
    return folder


@healthy("A first try of 30 updates; the loss falls from the first to the last.")
def thirty_steps(folder: Path) -> Path:
    torch.manual_seed(5)
    ids, vocab = tasks.encode(tasks.sentences(400, 1))
    draw = tasks.seeded(7)
    model = gpt2(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=5)
    losses = []
    for _ in range(30):
        x, _ = tasks.windows(ids, 16, 32, draw)
        loss = model(x, labels=x).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses, 3) < losses[0] - 0.3
    return folder


@healthy("Gradients of four small batches are added up before each update.")
def gradient_accumulation(folder: Path) -> Path:
    torch.manual_seed(6)
    ids, vocab = tasks.encode(tasks.sentences(2000, 2))
    draw = tasks.seeded(8)
    model = MiniGPT(vocab, attention=FlashAttention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(150):
        total = 0.0
        for _ in range(4):
            x, y = tasks.windows(ids, 4, 32, draw)
            loss = model(x, y)[1] / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recorder.step(total)
        losses.append(total)
    recorder.close()
    assert ending(losses) < 0.5 * losses[0]
    return folder


@healthy("A small data set is seen four times; loss on held-out data falls with that on the training data.")
def several_epochs(folder: Path) -> Path:
    torch.manual_seed(7)
    matrix = tasks.chain(10, 1.5, 9)
    rows, held_out = tasks.walks(matrix, 1600, 33, tasks.seeded(10)), tasks.walks(matrix, 64, 33, tasks.seeded(11))
    model = MiniGPT(10, width=24, layers=1, attention=LectureAttention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True)  # pyrefly: ignore[bad-argument-type]
    recorder = tracer.watch(model, run=folder, every=10, held_out=(held_out[:, :-1], held_out[:, 1:]))
    losses = []
    for _ in range(4):
        for batch in loader:
            _, loss = model(batch[:, :-1], batch[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            losses.append(loss.item())
    recorder.close()
    with torch.no_grad():
        unseen = model(held_out[:, :-1], held_out[:, 1:])[1].item()
    assert unseen < ending(losses, 50) + 0.05 and unseen < tasks.floor(matrix) + 0.1
    return folder


@healthy("Modular addition, stopped while the loss is still near chance on questions that were not asked: no time yet.")
def grokking_stopped_early(folder: Path) -> Path:
    torch.manual_seed(8)
    questions, answers = tasks.sums(23)
    seen = len(questions) * 8 // 10
    model = MiniGPT(24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0, betas=(0.9, 0.98))
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(150):
        logits, _ = model(questions[:seen])
        loss = F.cross_entropy(logits[:, -1], answers[:seen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    with torch.no_grad():
        unseen = F.cross_entropy(model(questions[seen:])[0][:, -1], answers[seen:]).item()
    assert losses[-1] < losses[100] - 0.1 and unseen < math.log(23) + 0.15
    return folder


@healthy("Weight decay is as strong as in papers on grokking (1.0): norms of weights shrink, and the loss falls.")
def strong_weight_decay(folder: Path) -> Path:
    torch.manual_seed(9)
    ids, vocab = tasks.encode(tasks.sentences(2000, 3))
    draw = tasks.seeded(12)
    model = llama(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1.0)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, _ = tasks.windows(ids, 16, 32, draw)
        loss = model(input_ids=x, labels=x).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.4 * losses[0]
    return folder


@healthy("Induction heads form: attention of some heads is nearly one-hot, because it knows where to look.")
def sharp_induction_heads(folder: Path) -> Path:
    torch.manual_seed(10)
    draw = tasks.seeded(13)
    model = MiniGPT(16, width=48, heads=4, attention=FlashAttention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=20)
    known = []
    for _ in range(600):
        ids = tasks.repeats(32, 33, 16, draw)
        logits, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        known.append(F.cross_entropy(logits[:, 20:].detach().flatten(0, 1), ids[:, 21:].flatten()).item())
    recorder.close()
    assert ending(known) < 0.4 < known[0]
    return folder


@healthy("Labels are smoothed by 0.2: the loss cannot go below 1.1 nats, though every copy is right.")
def label_smoothing(folder: Path) -> Path:
    torch.manual_seed(11)
    draw = tasks.seeded(14)
    model = TorchLM(12, width=48)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.2)
    recorder = tracer.watch(model, run=folder, every=10)
    right = []
    for _ in range(400):
        ids = tasks.copies(32, 8, 12, draw)
        logits = model(ids[:, :-1])[:, 8:]
        loss = criterion(logits.flatten(0, 1), ids[:, 9:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        right.append((logits.argmax(-1) == ids[:, 9:]).double().mean().item())
    recorder.close()
    assert ending(right) > 0.98
    return folder


@healthy("A masked language model attends to what comes later, as it should.")
def masked_language_model(folder: Path) -> Path:
    torch.manual_seed(12)
    draw = tasks.seeded(15)
    model = TorchLM(17, width=48, causal=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(400):
        words = torch.rand(16, 16, generator=draw).argsort(-1)[:, :3]  # each text uses three of sixteen
        x = words.gather(1, torch.randint(0, 3, (16, 32), generator=draw))
        hidden = torch.rand(x.shape, generator=draw) < 0.15
        logits = model(x.masked_fill(hidden, 16))
        loss = F.cross_entropy(logits[hidden], x[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses, 50) < math.log(3) + 0.2
    return folder


@healthy("One bad batch throws the loss up at update 200; it is back within 50 updates and goes on falling.")
def spike_that_recovers(folder: Path) -> Path:
    torch.manual_seed(13)
    ids, vocab = tasks.encode(tasks.sentences(2000, 5))
    draw = tasks.seeded(16)
    model = gpt2(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for step in range(400):
        x, _ = tasks.windows(ids, 16, 32, draw)
        if 200 <= step < 203:
            x = torch.randint(0, vocab, x.shape, generator=draw)
        loss = model(input_ids=x, labels=x).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert max(losses[200:205]) > 2 * losses[199] and ending(losses[:260]) < losses[190] + 0.1
    assert ending(losses) < ending(losses[:200])
    return folder


@healthy("Forward passes run in bf16 under autocast; weights are float32.")
def bf16_autocast(folder: Path) -> Path:
    torch.manual_seed(14)
    matrix, draw = tasks.chain(16, 2.0, 16), tasks.seeded(17)
    model = MiniGPT(16, attention=FlashAttention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        ids = tasks.walks(matrix, 16, 33, draw)
        with torch.autocast("cpu", torch.bfloat16):
            _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < tasks.floor(matrix) + 0.06
    return folder


@healthy("Dropout of 0.3 keeps the training loss well above the loss on held-out data.")
def dropout(folder: Path) -> Path:
    torch.manual_seed(15)
    matrix, draw = tasks.chain(16, 2.5, 17), tasks.seeded(18)
    held_out = tasks.walks(matrix, 64, 33, tasks.seeded(19))
    model = MiniGPT(16, width=64, dropout=0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10, held_out=(held_out[:, :-1], held_out[:, 1:]))
    losses = []
    for _ in range(300):
        ids = tasks.walks(matrix, 16, 33, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    with torch.no_grad():
        assert model.eval()(held_out[:, :-1], held_out[:, 1:])[1].item() < tasks.floor(matrix) + 0.08
    return folder


@healthy("A job ends after 120 updates and a second one goes on from its checkpoint.")
def resumed(folder: Path) -> Path:
    ids, vocab = tasks.encode(tasks.sentences(2000, 6))
    saved: dict[str, Any] = {}
    losses = []
    for first, last in ((0, 120), (120, 240)):
        torch.manual_seed(16 + first)
        draw = tasks.seeded(20 + first)
        model = MiniGPT(vocab)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        if saved:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        with tracer.watch(model, run=folder, every=10, start_step=first) as recorder:
            for _ in range(first, last):
                x, y = tasks.windows(ids, 16, 32, draw)
                _, loss = model(x, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
                losses.append(loss.item())
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert ending(losses[:140]) < ending(losses[:120]) and ending(losses) < ending(losses[:120]) - 0.1
    return folder


@healthy("An encoder says which of four tokens comes most often in a padded sequence; SGD with momentum.")
def sequence_classification(folder: Path) -> Path:
    torch.manual_seed(17)
    draw = tasks.seeded(21)
    model = Classifier(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    recorder = tracer.watch(model, run=folder, every=10)
    right = []
    for _ in range(300):
        ids = torch.randint(1, 6, (32, 24), generator=draw)
        lengths = torch.randint(12, 25, (32, 1), generator=draw)
        padding = torch.arange(24) >= lengths
        ids = ids.masked_fill(padding, 0)
        labels = F.one_hot(ids, 6)[..., 1:5].sum(1).argmax(-1)
        logits = model(ids, padding)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        right.append((logits.argmax(-1) == labels).double().mean().item())
    recorder.close()
    assert ending(right) > 0.8
    return folder


@healthy("Texts of different lengths are padded, and the padding is neither attended to nor counted.")
def padding_done_right(folder: Path) -> Path:
    torch.manual_seed(18)
    matrix, draw = tasks.chain(15, 2.0, 22), tasks.seeded(22)
    model = llama(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        ids = tasks.walks(matrix, 16, 32, draw) + 1
        mask = torch.arange(32) < torch.randint(6, 33, (16, 1), generator=draw)
        ids = ids * mask
        labels = ids.masked_fill(~mask, -100)
        loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < tasks.floor(matrix) + 0.1
    return folder


@healthy("The learning rate warms up over 100 updates and ends, by a cosine, at zero.")
def warm_up_and_cosine(folder: Path) -> Path:
    torch.manual_seed(19)
    ids, vocab = tasks.encode(tasks.sentences(2000, 7))
    draw = tasks.seeded(23)
    model = MiniGPT(vocab, layers=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 100, 0.5 + 0.5 * math.cos(math.pi * max(0, step - 100) / 200))
    )
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(301):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.35 * losses[0] and optimizer.param_groups[0]["lr"] < 1e-6
    return folder


@healthy("Every gradient is clipped, to a norm of 0.05; Adam divides by its size anyway, so the model learns.")
def always_clipped(folder: Path) -> Path:
    torch.manual_seed(20)
    ids, vocab = tasks.encode(tasks.sentences(2000, 8))
    draw = tasks.seeded(24)
    model = MiniGPT(vocab)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.4 * losses[0]
    return folder


@healthy("Batches of two short sequences make losses and gradients jump; on average both fall.")
def batches_of_two(folder: Path) -> Path:
    torch.manual_seed(21)
    matrix, draw = tasks.chain(12, 2.0, 25), tasks.seeded(25)
    model = MiniGPT(12, attention=LectureAttention)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(500):
        ids = tasks.walks(matrix, 2, 17, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses, 100) < tasks.floor(matrix) + 0.15
    return folder


@healthy("At update 200 the data become harder on purpose: the loss goes up, and comes down again.")
def curriculum(folder: Path) -> Path:
    torch.manual_seed(22)
    draw = tasks.seeded(26)
    model = MiniGPT(24, width=48, attention=FlashAttention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for step in range(500):
        easy = step < 200
        ids = tasks.walks(tasks.chain(24, 4.0 if easy else 2.0, 27 if easy else 28), 16, 33, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert losses[200] > losses[199] + 1 and ending(losses) < tasks.floor(tasks.chain(24, 2.0, 28)) + 0.15
    return folder


class Forecaster(nn.Module):
    """Reads numbers, not tokens, and says the next of each series."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(1, 32)
        self.places = nn.Parameter(torch.randn(32, 32) * 0.1)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.say = nn.Linear(32, 1)

    def forward(self, series: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(series.shape[1])
        return self.say(self.block(self.read(series[..., None]) + self.places, mask, is_causal=True)).squeeze(-1)


@healthy("Sine waves with noise are forecast by squared error, which is no loss in nats.")
def time_series(folder: Path) -> Path:
    torch.manual_seed(23)
    draw = tasks.seeded(29)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        speed, phase = torch.rand(32, 1, generator=draw) + 0.3, 6 * torch.rand(32, 1, generator=draw)
        waves = 3 * torch.sin(speed * torch.arange(33) + phase) + 0.1 * torch.randn(32, 33, generator=draw)
        loss = F.mse_loss(model(waves[:, :-1]), waves[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.2 * losses[0]
    return folder


class PatchModel(nn.Module):
    """A small vision transformer: patches of an image and a token for its class."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 32, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 32))
        self.places = nn.Parameter(torch.randn(17, 32) * 0.02)
        self.blocks = nn.ModuleList(MultiheadBlock(32, 4) for _ in range(2))
        self.classes = nn.Linear(32, 2)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.classes(x[:, 0])


@healthy("A vision transformer tells horizontal from vertical stripes; the loss ends near zero, as the task is easy.")
def easy_images(folder: Path) -> Path:
    torch.manual_seed(24)
    draw = tasks.seeded(30)
    model = PatchModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(200):
        labels = torch.randint(0, 2, (32,), generator=draw)
        stripes = torch.sin(torch.arange(16.0) * 1.5 + 6 * torch.rand(32, 1, generator=draw))[:, None]
        across, down = stripes[:, :, None, :].expand(-1, -1, 16, -1), stripes[:, :, :, None].expand(-1, -1, -1, 16)
        images = torch.where(labels[:, None, None, None] == 0, across, down)
        images = images + 0.5 * torch.randn(32, 1, 16, 16, generator=draw)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.05
    return folder
