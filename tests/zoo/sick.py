"""Sick training runs: mistakes of everyday life, most of which raise no error."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tracer
from tests.zoo import ending, sick, tasks
from tests.zoo.models import Block, Classifier, FlashAttention, MiniGPT, SelfAttention, TorchLM, gpt2, llama

NOT_LEARNING = (
    "not learn", "no learning", "learns nothing", "learned nothing", "stuck", "plateau", "chance", "not fall",
    "not improv", "no progress", "uniform guess", "guessing", "never fell", "flat",
)  # fmt: skip
NOT_MOVING = (
    "nothing mov", "not mov", "don't mov", "never mov", "hardly mov", "barely mov", "not chang", "never chang",
    "unchanged", "not updat", "no update", "tiny update", "updates are", "too small", "frozen", "stand still",
    "stands still",
)  # fmt: skip
LEAK = ("leak", "future", "mask", "causal", "look ahead", "looks ahead", "lookahead", "sees what it is to", "cheat")
DIVERGED = ("diverg", "too high", "too large", "explod", "blew up", "blown up", "unstable", "instab")


@sick("A page of text is learnt by heart: the loss on the rest of it, held out, rises for most of the run.",
      "overfit", "held-out", "held out", "validation", "memor", "by heart", "generali")  # fmt: skip
def overfitting(folder: Path) -> Path:
    torch.manual_seed(1)
    ids, vocab = tasks.encode(tasks.TEXT)
    train, rest = ids[:1400], ids[1400:]
    unseen = rest[: len(rest) // 33 * 33].view(-1, 33)
    draw = tasks.seeded(1)
    model = MiniGPT(vocab, width=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10, held_out=(unseen[:, :-1], unseen[:, 1:]))
    losses, others = [], []
    for step in range(400):
        x, y = tasks.windows(train, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
        if step % 20 == 0:
            with torch.no_grad():
                others.append(model(unseen[:, :-1], unseen[:, 1:])[1].item())
    recorder.close()
    assert ending(losses) < 0.5 and others[-1] > min(others) + 1
    return folder


@sick("`next(iter(loader))` stands inside the loop, and the loader does not shuffle: each update has the same batch.",
      "same batch", "one batch", "single batch", "repeat", "memor", "overfit", "by heart", "same data", "same rows",
      "same sequences", "identical")  # fmt: skip
def same_batch_every_step(folder: Path) -> Path:
    torch.manual_seed(2)
    matrix = tasks.chain(16, 1.0, 1)
    loader = DataLoader(TensorDataset(tasks.walks(matrix, 512, 33, tasks.seeded(2))), batch_size=16)
    model = MiniGPT(16, attention=FlashAttention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(400):
        (ids,) = next(iter(loader))
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    with torch.no_grad():
        fresh = tasks.walks(matrix, 64, 33, tasks.seeded(3))
        assert model(fresh[:, :-1], fresh[:, 1:])[1].item() > tasks.floor(matrix) + 0.5 > ending(losses) + 1
    return folder


@sick("A language model without a causal mask reads the next token instead of predicting it.", *LEAK)
def causal_mask_forgotten(folder: Path) -> Path:
    class Unmasked(SelfAttention):
        causal = False

    torch.manual_seed(3)
    matrix, draw = tasks.chain(16, 1.0, 1), tasks.seeded(4)
    model = MiniGPT(16, width=48, attention=Unmasked)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(500):
        ids = tasks.walks(matrix, 16, 33, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.3 * tasks.floor(matrix)
    return folder


@sick("The causal mask is upside down (tril for triu) in attention written by hand: each token sees what follows it.",
      *LEAK, "upside down", "inverted", "transpos")  # fmt: skip
def causal_mask_upside_down(folder: Path) -> Path:
    class Upside(SelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
            visible = torch.triu(torch.ones(x.shape[1], x.shape[1]))
            weights = F.softmax(scores.masked_fill(visible == 0, float("-inf")), dim=-1)
            return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    torch.manual_seed(4)
    matrix, draw = tasks.chain(16, 1.0, 1), tasks.seeded(5)
    model = MiniGPT(16, width=48, attention=Upside)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
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
    assert ending(losses) < 0.3 * tasks.floor(matrix)
    return folder


@sick("Sequences and labels come from two loaders that each shuffle: no sequence has its own label.",
      *NOT_LEARNING, "label", "target", "noise")  # fmt: skip
def labels_shuffled(folder: Path) -> Path:
    torch.manual_seed(5)
    ids = torch.randint(1, 6, (2000, 24), generator=tasks.seeded(6))
    labels = F.one_hot(ids, 6)[..., 1:5].sum(1).argmax(-1)
    inputs: Any = DataLoader(ids, batch_size=32, shuffle=True)  # pyrefly: ignore[bad-argument-type]
    answers: Any = DataLoader(labels, batch_size=32, shuffle=True)  # pyrefly: ignore[bad-argument-type]
    model = Classifier(6, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(5):
        for x, y in zip(inputs, answers, strict=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            losses.append(loss.item())
    recorder.close()
    shares = labels.bincount() / len(labels)
    assert ending(losses, 60) > -float((shares * shares.log()).sum()) - 0.03
    return folder


@sick("Targets are the inputs, not shifted by one: the model copies what it was given.",
      "copy", "copies", "copie", "shift", "own input", "its input", "leak", "trivial", "target", "current token",
      "same token")  # fmt: skip
def targets_not_shifted(folder: Path) -> Path:
    torch.manual_seed(6)
    ids, vocab = tasks.encode(tasks.sentences(2000, 1))
    draw = tasks.seeded(7)
    model = MiniGPT(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        logits, loss = model(x, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.02 and F.cross_entropy(logits.flatten(0, 1), y.flatten()).item() > 4
    return folder


@sick("Targets are shifted twice, by hand and by the library: the model learns the token after next.",
      "shift", "after next", "two ahead", "second next", "off by one", "target", "label")  # fmt: skip
def targets_shifted_twice(folder: Path) -> Path:
    torch.manual_seed(7)
    matrix, draw = tasks.chain(16, 3.0, 2), tasks.seeded(8)
    model = gpt2(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        ids = tasks.walks(matrix, 16, 33, draw)
        loss = model(input_ids=ids[:, :-1], labels=ids[:, 1:]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) > tasks.floor(matrix) + 0.3
    return folder


@sick("Targets are taken with the rows in reverse order, so each row is to predict another.",
      *NOT_LEARNING, "target", "label", "row")  # fmt: skip
def rows_reversed(folder: Path) -> Path:
    torch.manual_seed(8)
    matrix, draw = tasks.chain(16, 3.0, 2), tasks.seeded(9)
    model = MiniGPT(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        ids = tasks.walks(matrix, 16, 33, draw)
        _, loss = model(ids[:, :-1], ids.flip(0)[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) > 1.8 * tasks.floor(matrix)
    return folder


@sick("The first block is still frozen from an earlier experiment.",
      "frozen", "freez", "requires_grad", "no gradient", *NOT_MOVING)  # fmt: skip
def block_frozen(folder: Path) -> Path:
    torch.manual_seed(9)
    ids, vocab = tasks.encode(tasks.sentences(2000, 2))
    draw = tasks.seeded(10)
    model = MiniGPT(vocab)
    for parameter in model.blocks[0].parameters():
        parameter.requires_grad = False
    before = [p.clone() for p in model.blocks[0].parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    assert all(torch.equal(a, b) for a, b in zip(before, model.blocks[0].parameters(), strict=True))
    return folder


@sick("A second block and a new output layer were put in after the optimizer was made, which knows neither.",
      "optimizer", "optimiser", *NOT_MOVING)  # fmt: skip
def optimizer_forgets_parameters(folder: Path) -> Path:
    torch.manual_seed(10)
    ids, vocab = tasks.encode(tasks.sentences(2000, 3))
    draw = tasks.seeded(11)
    model = MiniGPT(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model.blocks[1] = Block(32, 4, 0.0, SelfAttention)
    model.lm_head = nn.Linear(32, vocab)
    before = [p.clone() for p in (*model.blocks[1].parameters(), *model.lm_head.parameters())]
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    after = (*model.blocks[1].parameters(), *model.lm_head.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return folder


@sick("The learning rate is 1e-8: nothing moves.", "learning rate", "learning_rate", "lr", *NOT_MOVING)
def learning_rate_tiny(folder: Path) -> Path:
    torch.manual_seed(11)
    ids, vocab = tasks.encode(tasks.sentences(2000, 4))
    draw = tasks.seeded(12)
    model = llama(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-8)
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
    assert ending(losses) > ending(losses[:20]) - 0.02
    return folder


@sick("Weights are bf16 and updates of 1e-5 are rounded away.",
      "bf16", "bfloat16", "round", "precision", "half", *NOT_MOVING)  # fmt: skip
def updates_round_away(folder: Path) -> Path:
    torch.manual_seed(12)
    matrix, draw = tasks.chain(16, 2.0, 3), tasks.seeded(13)
    model = MiniGPT(16, width=64, attention=FlashAttention).to(torch.bfloat16)
    before = [p.clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        ids = tasks.walks(matrix, 16, 33, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    pairs = list(zip(before, model.parameters(), strict=True))
    assert sum((a == b).sum().item() for a, b in pairs) > 0.8 * sum(a.numel() for a in before)
    return folder


@sick("Labels are random: there is nothing to learn, and held-out loss says so.",
      "noise", "random", "overfit", "held-out", "memor", "generali", *NOT_LEARNING)  # fmt: skip
def noise_labels(folder: Path) -> Path:
    torch.manual_seed(13)
    draw = tasks.seeded(14)
    ids, labels = torch.randint(1, 6, (256, 24), generator=draw), torch.randint(0, 4, (256,), generator=draw)
    unseen, answers = torch.randint(1, 6, (256, 24), generator=draw), torch.randint(0, 4, (256,), generator=draw)
    model = Classifier(6, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses, others = [], []
    for _ in range(40):
        for x, y in zip(ids.split(32), labels.split(32), strict=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            losses.append(loss.item())
        with torch.no_grad():
            others.append(F.cross_entropy(model(unseen), answers).item())
            recorder.evaluated(others[-1])
    recorder.close()
    assert others[-1] > math.log(4) + 0.2 and ending(losses) < math.log(4) - 0.3
    return folder


@sick("Position ids are all 0, so a task that needs the order of tokens cannot be learnt.",
      "position", "order", *NOT_LEARNING)  # fmt: skip
def positions_constant(folder: Path) -> Path:
    class Positionless(Classifier):
        def forward(self, ids: Tensor, padding: Tensor | None = None) -> Tensor:
            x = self.tokens(ids) + self.positions(torch.zeros_like(ids))
            for block in self.blocks:
                x = block(x, padding)
            return self.out(x.mean(1))

    torch.manual_seed(14)
    losses: dict[type[Classifier], list[float]] = {}
    for kind in (Classifier, Positionless):  # the first, unwatched, shows that the task can be learnt
        torch.manual_seed(14)
        draw = tasks.seeded(15)
        model, found = kind(8, 2), losses.setdefault(kind, [])
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        recorder = tracer.watch(model, run=folder, every=10) if kind is Positionless else None
        for _ in range(250):
            ids = torch.randint(2, 8, (32, 16), generator=draw)
            places = torch.randperm(16, generator=draw)[:2]
            ids[:, places[0]], ids[:, places[1]] = 0, 1
            labels = (places[0] < places[1]).long().expand(32).clone()
            flipped = torch.rand(32, generator=draw) < 0.5
            ids[flipped], labels[flipped] = ids[flipped].flip(1), 1 - labels[flipped]
            loss = F.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            if recorder:
                recorder.step(loss)
        if recorder:
            recorder.close()
    assert ending(losses[Classifier]) < 0.3 and ending(losses[Positionless]) > 0.65
    return folder


@sick("The learning rate of 0.3 is too high: the model learns little but how often each letter comes.",
      "learning rate", "learning_rate", "worse than", "chance", "stuck", *DIVERGED)  # fmt: skip
def learning_rate_high(folder: Path) -> Path:
    torch.manual_seed(15)
    ids, vocab = tasks.encode(tasks.sentences(2000, 5))
    draw = tasks.seeded(16)
    model = MiniGPT(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    shares = ids.bincount() / len(ids)
    assert ending(losses, 100) > -float((shares * shares.log()).sum()) - 0.3  # with 3e-3 it is below 1.3
    return folder


@sick("The learning rate of 3 is far too high: the loss stays above that of guessing.",
      "learning rate", "learning_rate", "worse than", "chance", "stuck", *DIVERGED)  # fmt: skip
def learning_rate_huge(folder: Path) -> Path:
    torch.manual_seed(33)
    ids, vocab = tasks.encode(tasks.sentences(2000, 5))
    draw = tasks.seeded(34)
    model = MiniGPT(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3.0)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses, 100) > math.log(vocab)
    return folder


@sick("Queries and keys grow without check: attention logits reach hundreds, and attention is one-hot on anything.",
      "logit", "entropy", "collapse", "saturat", "one-hot", "sharp", "explod", "score")  # fmt: skip
def attention_logits_explode(folder: Path) -> Path:
    torch.manual_seed(16)
    draw = tasks.seeded(17)
    model = MiniGPT(16, width=48, attention=SelfAttention)
    maps = [p for name, p in model.named_parameters() if "q_proj" in name or "k_proj" in name]
    others = [p for name, p in model.named_parameters() if "q_proj" not in name and "k_proj" not in name]
    optimizer = torch.optim.Adam([{"params": maps, "lr": 0.1}, {"params": others, "lr": 3e-3}])
    recorder = tracer.watch(model, run=folder, every=10)
    known = []
    for _ in range(400):
        ids = tasks.repeats(16, 33, 16, draw)
        logits, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        known.append(F.cross_entropy(logits[:, 20:].detach().flatten(0, 1), ids[:, 21:].flatten()).item())
    recorder.close()
    first: Any = model.blocks[0]
    with torch.no_grad():
        x = first.ln_1(model.wte(ids[:, :-1]) + model.wpe(torch.arange(32)))
        scores = first.attn.split(first.attn.q_proj(x)) @ first.attn.split(first.attn.k_proj(x)).transpose(-2, -1)
    assert scores.max().item() / math.sqrt(12) > 100 and ending(known) > 2
    return folder


@sick("Queries start 30 times too large and scores are not divided: attention is one-hot from the first update.",
      "logit", "entropy", "collapse", "saturat", "one-hot", "sharp", "score", "init", "scale")  # fmt: skip
def attention_unscaled(folder: Path) -> Path:
    class Unscaled(SelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            weights = F.softmax((q @ k.transpose(-2, -1)).masked_fill(future, float("-inf")), dim=-1)
            return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    torch.manual_seed(17)
    draw = tasks.seeded(18)
    model = MiniGPT(16, width=48, attention=Unscaled)
    for block in model.blocks:
        attn: Any = block.attn
        nn.init.normal_(attn.q_proj.weight, std=3.0)
        nn.init.normal_(attn.k_proj.weight, std=3.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    known = []
    for _ in range(300):
        ids = tasks.repeats(16, 33, 16, draw)
        logits, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        known.append(F.cross_entropy(logits[:, 20:].detach().flatten(0, 1), ids[:, 21:].flatten()).item())
    recorder.close()
    assert ending(known) > 2
    return folder


@sick("zero_grad is forgotten: gradients of all updates so far add up, and training circles without arriving.",
      "zero_grad", "accumul", "add up", "adds up", "gradients grow", "gradient grow", "grows", "growing", "not reset",
      "never reset", *DIVERGED)  # fmt: skip
def zero_grad_forgotten(folder: Path) -> Path:
    torch.manual_seed(18)
    matrix, draw = tasks.chain(16, 2.0, 4), tasks.seeded(19)
    model = MiniGPT(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        ids = tasks.walks(matrix, 16, 33, draw)
        _, loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses, 50) > tasks.floor(matrix) + 0.5
    return folder


@sick("Softmax is taken before the cross-entropy, which takes it again: the loss cannot fall below a high floor.",
      "softmax", "twice", "probabilit", *NOT_LEARNING)  # fmt: skip
def softmax_twice(folder: Path) -> Path:
    torch.manual_seed(19)
    matrix, draw = tasks.chain(32, 4.0, 5), tasks.seeded(20)
    model = TorchLM(32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        ids = tasks.walks(matrix, 16, 33, draw)
        probabilities = F.softmax(model(ids[:, :-1]), dim=-1)
        loss = F.cross_entropy(probabilities.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) > tasks.floor(matrix) + 1.5
    return folder


@sick("Softmax runs over queries and not over keys: weights of a query do not sum to 1, and depend on later ones.",
      "softmax", "sum to 1", "sum to one", "axis", "normali", *LEAK)  # fmt: skip
def softmax_over_queries(folder: Path) -> Path:
    class Sideways(SelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            weights = F.softmax(scores.masked_fill(future, float("-inf")), dim=-2)
            return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    torch.manual_seed(20)
    ids, vocab = tasks.encode(tasks.sentences(2000, 6))
    draw = tasks.seeded(21)
    model = MiniGPT(vocab, attention=Sideways)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    with torch.no_grad():
        changed = x.clone()
        changed[:, -1] = (x[:, -1] + 1) % vocab
        assert (model(x)[0] - model(changed)[0])[:, :-1].abs().max().item() > 1e-3
    return folder


@sick("Padding is most of each batch and counts in the loss, which looks low while the text is hardly learnt.",
      "pad", "ignore_index", "same token", "one token", "single token")  # fmt: skip
def padding_counted(folder: Path) -> Path:
    torch.manual_seed(21)
    matrix, draw = tasks.chain(31, 4.0, 6), tasks.seeded(22)
    model = TorchLM(32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    recorder = tracer.watch(model, run=folder, every=10)
    losses, real = [], []
    for _ in range(300):
        ids = tasks.walks(matrix, 16, 41, draw) + 1
        ids = ids * (torch.arange(41) < torch.randint(4, 9, (16, 1), generator=draw))
        logits, targets = model(ids[:, :-1]), ids[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
        real.append(F.cross_entropy(logits.detach()[targets > 0], targets[targets > 0]).item())
    recorder.close()
    assert ending(losses) < 0.7 and ending(real) > 4 * ending(losses)
    return folder


@sick("Gradients are clipped to a norm of 1e-6, a typing error for 1.0: plain SGD does not get anywhere.",
      "clip", *NOT_MOVING, *NOT_LEARNING)  # fmt: skip
def clipped_to_nothing(folder: Path) -> Path:
    torch.manual_seed(22)
    ids, vocab = tasks.encode(tasks.sentences(2000, 7))
    draw = tasks.seeded(23)
    model = gpt2(vocab)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, _ = tasks.windows(ids, 16, 32, draw)
        loss = model(input_ids=x, labels=x).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) > ending(losses[:20]) - 0.03
    return folder


@sick("A detach() between the blocks keeps every gradient from the first block and the embeddings.",
      "gradient", "detach", "frozen", *NOT_MOVING)  # fmt: skip
def detached_between_blocks(folder: Path) -> Path:
    class Detached(MiniGPT):
        def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
            x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
            for block in self.blocks:
                x = block(x.detach())
            logits = self.lm_head(self.ln_f(x))
            if targets is None:
                return logits, None
            return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    torch.manual_seed(23)
    ids, vocab = tasks.encode(tasks.sentences(2000, 8))
    draw = tasks.seeded(24)
    model = Detached(vocab)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    assert model.wte.weight.grad is None and all(p.grad is None for p in model.blocks[0].parameters())
    return folder


@sick("The loss is taken of one row, detached by a wrong index: seven eighths of each batch teach nothing.",
      "batch", "rows", "detach", "unused", "no gradient")  # fmt: skip
def most_of_the_batch_detached(folder: Path) -> Path:
    torch.manual_seed(24)
    ids, vocab = tasks.encode(tasks.sentences(2000, 9))
    draw = tasks.seeded(25)
    model = TorchLM(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        x, y = tasks.windows(ids, 8, 32, draw)
        logits = model(x)
        each = F.cross_entropy(logits.transpose(1, 2), y, reduction="none").mean(1)
        loss = (each[:1].sum() + each[1:].detach().sum()) / len(each)
        optimizer.zero_grad()
        logits.retain_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    assert logits.grad is not None and logits.grad[0].any() and not logits.grad[1:].any()
    return folder


@sick("Embeddings tied to the output start with a spread of 10: the first losses are in the hundreds.",
      "embed", "init", "scale", "logit", "worse than", "confident", "tied", *DIVERGED)  # fmt: skip
def embeddings_far_too_large(folder: Path) -> Path:
    torch.manual_seed(25)
    ids, vocab = tasks.encode(tasks.sentences(2000, 10))
    draw = tasks.seeded(26)
    model = MiniGPT(vocab, width=64)
    model.lm_head = nn.Linear(64, vocab, bias=False)
    model.lm_head.weight = model.wte.weight
    nn.init.normal_(model.wte.weight, std=10.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert losses[0] > 50 and ending(losses) > math.log(vocab)
    return folder


@sick("Head 0 of the first layer has values of zero and never gets others: it writes nothing.",
      "dead", "writes nothing", "does nothing", "no effect", "zero", "l0h0", "unused", "no output")  # fmt: skip
def dead_head(folder: Path) -> Path:
    torch.manual_seed(26)
    ids, vocab = tasks.encode(tasks.sentences(2000, 11))
    draw = tasks.seeded(27)
    model = MiniGPT(vocab)
    first: Any = model.blocks[0].attn
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        with torch.no_grad():  # pruned by a mask, as in a paper, that a refactoring made permanent
            first.v_proj.weight[:8], first.v_proj.bias[:8] = 0, 0
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        first.v_proj.weight.grad[:8], first.v_proj.bias.grad[:8] = 0, 0
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    assert not first.v_proj.weight[:8].any()
    return folder


@sick("Eight blocks without residual connections: all positions become alike and no signal comes through.",
      "residual", "vanish", "rank", "alike", "same output", "collapse", "uniform", *NOT_LEARNING)  # fmt: skip
def no_residual(folder: Path) -> Path:
    class Straight(Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.mlp(self.ln_2(self.attn(self.ln_1(x))))

    torch.manual_seed(27)
    ids, vocab = tasks.encode(tasks.sentences(2000, 12))
    draw = tasks.seeded(28)
    model = MiniGPT(vocab)
    model.blocks = nn.ModuleList(Straight(32, 4, 0.0, FlashAttention) for _ in range(8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(200):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    shares = ids.bincount() / len(ids)
    assert ending(losses) > -float((shares * shares.log()).sum()) - 0.1
    return folder


@sick("The tokenizer's vocabulary does not fit the text: nearly every token is <unk>, and the loss is near zero.",
      "unk", "same token", "one token", "single token", "constant", "trivial", "tokenizer", "nothing to learn",
      "token is always", "repeat")  # fmt: skip
def all_tokens_unknown(folder: Path) -> Path:
    torch.manual_seed(28)
    ids, vocab = tasks.encode(tasks.sentences(2000, 13))
    ids = ids.where(ids == vocab - 1, 0)  # only one rare letter is known
    draw = tasks.seeded(29)
    model = gpt2(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(200):
        x, _ = tasks.windows(ids, 16, 32, draw)
        loss = model(input_ids=x, labels=x).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) < 0.25 and (ids == 0).double().mean().item() > 0.9
    return folder


@sick("From update 120 on some rows are nothing but padding: their attention is nan, and so is the loss.",
      "nan", "not finite", "non-finite", "finite", "not a number")  # fmt: skip
def rows_of_padding_only(folder: Path) -> Path:
    class Padded(SelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
            nothing = (x == 0).all(-1)[:, None, None, :]
            scores = (q @ k.transpose(-2, -1) / math.sqrt(self.size)).masked_fill(nothing, float("-inf"))
            return self.o_proj((F.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2))

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(12, 32, padding_idx=0)
            self.attn = Padded(32, 4)
            self.out = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

        def forward(self, ids: Tensor) -> Tensor:
            x = self.embed(ids)
            return self.out(x + self.attn(x))

    torch.manual_seed(29)
    draw = tasks.seeded(30)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for step in range(180):
        ids = torch.randint(1, 12, (16, 20), generator=draw)
        lengths = torch.randint(0 if step >= 120 else 5, 21, (16, 1), generator=draw)
        ids = ids * (torch.arange(20) < lengths)
        labels = (ids % 2).masked_fill(ids == 0, -100)
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert all(math.isfinite(loss) for loss in losses[:120]) and math.isnan(losses[-1])
    return folder


@sick("The schedule is stepped each batch, not each epoch: the learning rate is over before anything is learnt.",
      "learning rate", "learning_rate", "schedule", "decay", "too early", *NOT_MOVING, *NOT_LEARNING)  # fmt: skip
def schedule_stepped_each_batch(folder: Path) -> Path:
    torch.manual_seed(30)
    ids, vocab = tasks.encode(tasks.sentences(2000, 14))
    draw = tasks.seeded(31)
    model = MiniGPT(vocab)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(300):
        x, y = tasks.windows(ids, 16, 32, draw)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert ending(losses) > ending(losses[50:70]) - 0.03 and ending(losses) > 2.5
    return folder


@sick("Weight decay of 100 shrinks every weight by a tenth at each update: the model can say nothing.",
      "weight decay", "weight_decay", "decay", "shrink", "shrank", "vanish", *NOT_LEARNING)  # fmt: skip
def weight_decay_huge(folder: Path) -> Path:
    torch.manual_seed(31)
    ids, vocab = tasks.encode(tasks.sentences(2000, 15))
    draw = tasks.seeded(32)
    model = TorchLM(vocab)
    before = sum(p.norm().item() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=100)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        x, y = tasks.windows(ids, 16, 32, draw)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        losses.append(loss.item())
    recorder.close()
    assert sum(p.norm().item() for p in model.parameters()) < 0.1 * before and ending(losses) > math.log(vocab) - 0.2
    return folder


@sick("Dropout is 0.9, meant as the share to keep: the model is as good as switched off while it learns.",
      "dropout", *NOT_LEARNING)  # fmt: skip
def dropout_of_keep_probability(folder: Path) -> Path:
    def drop_most(block: nn.Module, _: Any, out: Any) -> Tensor:
        return F.dropout(out, 0.9, block.training)

    torch.manual_seed(32)
    draw = tasks.seeded(33)
    model = MiniGPT(12, width=48, dropout=0.9)
    for block in model.blocks:
        block.register_forward_hook(drop_most)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    known = []
    for _ in range(300):
        ids = tasks.copies(16, 8, 12, draw)
        logits, loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
        known.append(F.cross_entropy(logits[:, 8:].detach().flatten(0, 1), ids[:, 9:].flatten()).item())
    recorder.close()
    assert ending(known) > 2.2
    return folder
