"""A second zoo: twelve sick and twelve healthy runs of other kinds, whose author knew no rule of the diagnosis either.

Other models (BERT, torch's encoder and decoder, attention as an einsum), other optimisers, other tasks and other ways
to write a training loop than in `sick.py` and `healthy.py`.
"""

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tracer
from tests.zoo import declared_healthy as healthy
from tests.zoo import declared_sick as sick
from tests.zoo import ending, tasks
from tests.zoo.models import gpt2, hf, llama
from tests.zoo.sick import DIVERGED, LEAK, NOT_LEARNING, NOT_MOVING

OWN_INPUT = (
    "copy", "copies", "copie", "shift", "own input", "its input", "leak", "trivial", "cheat", "target", "answer",
    "current token", "same token", "too good",
)  # fmt: skip


class EinsumBlock(nn.Module):
    """A block written with einsum: RMSNorm, attention whose weights are [3, head, width, size], a squared ReLU."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        size = width // heads
        self.causal = causal
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Parameter(torch.randn(3, heads, width, size) * width**-0.5)
        self.out = nn.Parameter(torch.randn(heads, size, width) * width**-0.5)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = torch.einsum("btd,khde->kbhte", x, self.qkv)
        scores = torch.einsum("bhqe,bhke->bhqk", q, k) * q.shape[-1] ** -0.5
        if self.causal:
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        return torch.einsum("bhqe,hed->bqd", torch.einsum("bhqk,bhke->bhqe", weights, v), self.out)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm_1(x))
        return x + self.down(self.up(self.norm_2(x)).relu().square())


class EinsumLM(nn.Module):
    """Ids in, one vector of `outputs` numbers a position out."""

    def __init__(
        self, vocab: int, outputs: int, width: int = 32, heads: int = 4, layers: int = 2, context: int = 48,
        causal: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.1)
        self.blocks = nn.Sequential(*(EinsumBlock(width, heads, causal) for _ in range(layers)))
        self.head = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, outputs))

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(ids) + self.places[: ids.shape[1]]))


class EncoderLM(nn.Module):
    """torch's encoder, with its norm after each sum and positions of sines, as in PyTorch's first tutorial."""

    def __init__(self, vocab: int, width: int = 32, layers: int = 2, batch_first: bool = True) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.src = nn.Embedding(vocab, width)
        places, speeds = torch.arange(64.0)[:, None], torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.register_buffer("pe", torch.stack([torch.sin(places * speeds), torch.cos(places * speeds)], -1).flatten(1))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.say = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.src(ids) + self.get_buffer("pe")[: ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1 if self.batch_first else 0])
        return self.say(self.encoder(x, mask=mask))


class EncoderClassifier(nn.Module):
    """torch's encoder over a sequence and a token of its own in front, whose vector says the class."""

    def __init__(self, vocab: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(33, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.classes = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        x = torch.cat([self.cls.expand(len(ids), -1, -1), self.embedding(ids)], 1)
        return self.classes(self.encoder(x + self.places[: x.shape[1]])[:, 0])


class Translator(nn.Module):
    """nn.Transformer: a source, what was said of the answer so far, logits of what is said next."""

    def __init__(self, vocab: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.places = nn.Parameter(torch.randn(24, width) * 0.1)
        self.transformer = nn.Transformer(width, 4, 1, 2, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.generator = nn.Linear(width, vocab)

    def forward(self, source: Tensor, said: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(said.shape[1])
        read, say = (self.embed(ids) + self.places[: ids.shape[1]] for ids in (source, said))
        return self.generator(self.transformer(read, say, tgt_mask=mask, tgt_is_causal=True))

    def answer(self, source: Tensor, length: int, start: int) -> Tensor:
        """Greedy, token by token: [batch, length]."""
        said = torch.full((len(source), 1), start)
        with torch.no_grad():
            for _ in range(length):
                said = torch.cat([said, self(source, said)[:, -1:].argmax(-1)], 1)
        return said[:, 1:]


def bert(head: str, vocab: int, **more: Any) -> Any:
    """A BERT of transformers with random weights, for sequences, tokens or masked tokens."""
    sizes = {
        "vocab_size": vocab, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "pad_token_id": 0,
    }  # fmt: skip
    return getattr(hf, f"BertFor{head}")(hf.BertConfig(**sizes | more))


def brackets(rows: int, length: int, seed: int) -> Tensor:
    """Two kinds of brackets, 0 1 open and 2 3 close what is open; begun with a 4: [rows, length]."""
    coin = random.Random(seed)

    def row() -> Iterator[int]:
        yield 4
        stack: list[int] = []
        for _ in range(length - 1):
            if not stack or (len(stack) < 6 and coin.random() < 0.5):
                stack.append(coin.randrange(2))
                yield stack[-1]
            else:
                yield stack.pop() + 2

    return torch.tensor([list(row()) for _ in range(rows)])


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """One update by a loss; the loss as a number."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def next_token(logits: Tensor, ids: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy of each token given those before it."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction=reduction)


@sick("A collator cuts texts to the length of the prompts, and what was to be learnt is cut off: all labels are -100.",
      "-100", "ignor", "label", "zero", "no gradient", "nothing to learn", *NOT_MOVING)  # fmt: skip
def labels_all_ignored(folder: Path) -> Path:
    torch.manual_seed(51)
    matrix, draw = tasks.chain(16, 2.0, 51), tasks.seeded(51)

    def collate(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        ids = torch.stack(rows)
        labels = ids.clone()
        labels[:, :24] = -100  # the prompt
        return ids[:, :24], labels[:, :24]  # max_length=24

    texts: Any = tasks.walks(matrix, 512, 32, draw)
    model = gpt2(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(6):
        for ids, labels in DataLoader(texts, batch_size=16, shuffle=True, collate_fn=collate, drop_last=True):
            logits = model(input_ids=ids).logits[:, :-1]
            each = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
            loss = each.sum() / (labels != -100).sum().clamp(min=1)
            losses.append(update(optimizer, loss))
            recorder.step(loss)
    recorder.close()
    assert not any(losses) and not any(p.grad.any() for p in model.parameters())
    with torch.no_grad():
        assert next_token(model(input_ids=texts[:64]).logits, texts[:64]).item() > tasks.floor(matrix) + 0.5
    return folder


@sick("The attention mask is 1 where there is padding and 0 where there is text: nothing that matters is attended to.",
      "mask", "pad", "invert", *NOT_LEARNING)  # fmt: skip
def attention_mask_inverted(folder: Path) -> Path:
    losses: dict[bool, list[float]] = {True: [], False: []}
    for inverted, found in losses.items():  # the second, unwatched, shows that the task can be learnt
        torch.manual_seed(52)
        draw = tasks.seeded(52)
        model = bert("SequenceClassification", 12, num_labels=2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        recorder = tracer.watch(model, run=folder, every=10) if inverted else None
        for _ in range(250):
            labels = torch.randint(0, 2, (16,), generator=draw)
            lengths = torch.randint(10, 20, (16, 1), generator=draw)
            ids = torch.randint(3, 12, (16, 24), generator=draw)
            ids[:, 0] = 1
            ids.scatter_(1, 1 + (torch.rand(16, 1, generator=draw) * (lengths - 1)).long(), labels[:, None] * 3 + 2)
            ids = ids.masked_fill(torch.arange(24) >= lengths, 0).masked_fill((ids == 5) & (labels[:, None] == 0), 6)
            mask = (ids == 0) if inverted else (ids != 0)
            loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
            found.append(update(optimizer, loss))
            if recorder:
                recorder.step(loss)
        if recorder:
            recorder.close()
    assert ending(losses[False]) < 0.2 and ending(losses[True], 60) > 0.66
    return folder


class Trainer:
    """A loop as people write it for a course: epochs, batches, an update every few batches."""

    def __init__(self, model: nn.Module, loader: Any, accumulate: int, recorder: Any) -> None:
        self.model, self.loader, self.accumulate, self.recorder = model, loader, accumulate, recorder
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.losses: list[float] = []

    def fit(self, epochs: int) -> None:
        for _ in range(epochs):
            self.optimizer.zero_grad()
            for i, (ids,) in enumerate(self.loader):
                loss = next_token(self.model(ids), ids)
                (loss / self.accumulate).backward()
                if (i + 1) % self.accumulate == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                self.losses.append(loss.item())
                self.recorder.step(loss)


@sick("An epoch has 6 batches, gradients are added up over 8, and each epoch begins anew: no update is ever made.",
      "optimizer", "optimiser", "accumul", "no step", "never step", *NOT_MOVING)  # fmt: skip
def accumulation_never_steps(folder: Path) -> Path:
    torch.manual_seed(53)
    loader = DataLoader(TensorDataset(brackets(96, 32, 53)), batch_size=16, shuffle=True)
    model = EncoderLM(5)
    before = [p.clone() for p in model.parameters()]
    recorder = tracer.watch(model, run=folder, every=10)
    trainer = Trainer(model, loader, 8, recorder)
    trainer.fit(40)
    recorder.close()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert ending(trainer.losses) > math.log(5) - 0.2
    return folder


@sick("The loss is the sum over all tokens, and the learning rate is one for a mean: steps are 500 times too large.",
      "sum", "learning rate", "learning_rate", "worse than", *DIVERGED)  # fmt: skip
def loss_summed(folder: Path) -> Path:
    ids = brackets(1000, 32, 54)
    losses: dict[str, list[float]] = {"sum": [], "mean": []}
    for reduction, found in losses.items():  # the second, unwatched, is what was meant
        torch.manual_seed(54)
        draw = tasks.seeded(54)
        model = gpt2(5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        recorder = tracer.watch(model, run=folder, every=10) if reduction == "sum" else None
        for _ in range(200):
            rows = ids[torch.randint(0, len(ids), (16,), generator=draw)]
            loss = next_token(model(input_ids=rows).logits, rows, reduction)
            found.append(update(optimizer, loss) / (16 * 31 if reduction == "sum" else 1))
            if recorder:
                recorder.step(loss)
        if recorder:
            recorder.close()
    assert ending(losses["mean"]) < 1.2 and not ending(losses["sum"], 100) < math.log(5)
    return folder


@sick("Every bias starts at -4.6, meant for the last layer's: no ReLU is ever active, and the MLPs learn nothing.",
      "dead", "relu", "never active", "inactive", "no gradient", "zero gradient", "gradient is zero", "init", "bias",
      *NOT_MOVING)  # fmt: skip
def relus_dead(folder: Path) -> Path:
    torch.manual_seed(55)
    draw = tasks.seeded(55)
    matrix = tasks.chain(16, 2.0, 55)
    model = EncoderLM(16)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.bias, -4.6)  # -log((1 - p) / p) of rare classes, p = 0.01
    seen: list[float] = []
    layers: Any = model.encoder.layers
    before = [layer.linear1.weight.clone() for layer in layers]
    for layer in layers:
        layer.linear1.register_forward_hook(lambda module, args, out: seen.append(out.max().item()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    for _ in range(250):
        ids = tasks.walks(matrix, 16, 32, draw)
        loss = next_token(model(ids), ids)
        update(optimizer, loss)
        recorder.step(loss)
    recorder.close()
    assert max(seen) < 0 and all(torch.equal(a, b.linear1.weight) for a, b in zip(before, layers, strict=True))
    return folder


@sick("The whole model is float16, where Adam's epsilon of 1e-8 is 0: it divides by zero at its first update.",
      "nan", "not finite", "non-finite", "infinite", "finite", "overflow", "underflow", "half", "fp16", "float16",
      "precision", "epsilon", "eps")  # fmt: skip
def adam_in_half(folder: Path) -> Path:
    torch.manual_seed(56)
    matrix, draw = tasks.chain(16, 2.0, 56), tasks.seeded(56)
    model = EinsumLM(32, 32).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8, foreach=False)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(60):
        ids = tasks.walks(matrix, 16, 32, draw)  # half of the vocabulary never comes: its gradient is 0
        loss = next_token(model(ids).float(), ids)
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert math.isfinite(losses[0]) and math.isnan(losses[-1])
    return folder


@sick("nn.TransformerEncoder gets [batch, position] and takes the first axis for positions: rows attend to each other.",
      "batch", "axis", "axes", "transpos", "across rows", "other row", "other sequence", "leak", *NOT_LEARNING,
      )  # fmt: skip
def batch_axis_attended(folder: Path) -> Path:
    losses: dict[bool, list[float]] = {False: [], True: []}
    for batch_first, found in losses.items():  # the second, unwatched, is what was meant
        torch.manual_seed(57)
        draw = tasks.seeded(57)
        model = EncoderLM(9, width=48, batch_first=batch_first)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        recorder = None if batch_first else tracer.watch(model, run=folder, every=10)
        for _ in range(300):
            ids = tasks.copies(24, 6, 9, draw)
            logits = model(ids)
            loss = next_token(logits, ids)
            update(optimizer, loss)
            found.append(next_token(logits[:, 6:].detach(), ids[:, 6:]).item())
            if recorder:
                recorder.step(loss)
        if recorder:
            recorder.close()
            changed = ids.clone()
            changed[0] = (ids[0] + 1) % 9
            with torch.no_grad():
                assert (model(changed) - model(ids))[1:].abs().max().item() > 1e-3
    assert ending(losses[True]) < 0.2 and ending(losses[False]) > math.log(8) - 0.2
    return folder


@sick("The decoder is given the answer itself, not shifted right: it says what it was just told, and cannot translate.",
      *LEAK, *OWN_INPUT, "teacher")  # fmt: skip
def decoder_not_shifted(folder: Path) -> Path:
    torch.manual_seed(58)
    draw = tasks.seeded(58)
    model = Translator(14)
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        source = torch.randint(1, 14, (16, 10), generator=draw)
        target = source.flip(1)
        logits = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses) < 0.1
    assert (model.answer(source, 10, 0) == source.flip(1)).double().mean().item() < 0.3
    return folder


@sick("`ids.masked_fill(...)` is not in place and its result is dropped: the tokens to be guessed stand in the input.",
      *OWN_INPUT, "masked token", "not masked", "unmasked", "hidden")  # fmt: skip
def masking_result_dropped(folder: Path) -> Path:
    torch.manual_seed(59)
    draw = tasks.seeded(59)
    matrix = tasks.chain(16, 2.0, 59)
    model = bert("MaskedLM", 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        ids = tasks.walks(matrix, 16, 32, draw) + 2
        chosen = torch.rand(ids.shape, generator=draw) < 0.15
        labels = ids.masked_fill(~chosen, -100)
        ids.masked_fill(chosen, 1)
        loss = model(input_ids=ids, labels=labels).loss
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    with torch.no_grad():
        hidden = model(input_ids=ids.masked_fill(chosen, 1), labels=labels).loss.item()
    assert ending(losses) < 0.1 and hidden > 2
    return folder


@sick("Five rows in a thousand are of the class that matters, and the model says for each row that it is not of it.",
      "imbalanc", "majority", "minority", "class", "rare", "constant", "same answer", "one answer", "frequenc", "prior",
      *NOT_LEARNING)  # fmt: skip
def majority_class_only(folder: Path) -> Path:
    def rows(share: float, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        labels = (torch.rand(count, generator=draw) < share).long()
        ids = torch.randint(2, 12, (count, 20), generator=draw)
        places = torch.randint(0, 19, (count, 1), generator=draw)
        ids.scatter_(1, places, 0).scatter_(1, places + 1, labels[:, None])  # 0 0 is a defect, 0 1 is none
        return ids, labels

    found: dict[float, Tensor] = {}
    for share in (0.005, 0.5):  # the second, unwatched, has as many of either
        torch.manual_seed(60)
        draw = tasks.seeded(60)
        model = EncoderClassifier(12, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        recorder = tracer.watch(model, run=folder, every=10) if share < 0.5 else None
        for _ in range(200):
            ids, labels = rows(share, 24, draw)
            loss = F.cross_entropy(model(ids), labels)
            update(optimizer, loss)
            if recorder:
                recorder.step(loss)
        if recorder:
            recorder.close()
        ids, labels = rows(0.5, 400, tasks.seeded(61))
        with torch.no_grad():
            found[share] = model(ids).argmax(-1)[labels == 1].double().mean()
    assert found[0.5] > 0.9 and found[0.005] == 0
    return folder


@sick("The minus before the mean log-probability is missing: the loss falls without end, away from the text.",
      "sign", "negative", "below zero", "below 0", "minus", "wrong direction", "ascent", *DIVERGED)  # fmt: skip
def sign_of_the_loss(folder: Path) -> Path:
    torch.manual_seed(62)
    ids = brackets(1000, 32, 62)
    draw = tasks.seeded(62)
    model = EinsumLM(5, 5)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(200):
        rows = ids[torch.randint(0, len(ids), (16,), generator=draw)]
        log_p = model(rows[:, :-1]).log_softmax(-1)
        loss = log_p.gather(-1, rows[:, 1:, None]).mean()
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert losses[-1] < losses[0] - 20
    return folder


@sick("The rows are sorted by their label and not shuffled: the model learns one class and forgets the one before.",
      "sorted", "order of", "shuffl", "forget", "one class", "same label", "single class", "same class", "imbalanc",
      "same answer", "constant")  # fmt: skip
def sorted_by_class(folder: Path) -> Path:
    torch.manual_seed(63)
    draw = tasks.seeded(63)
    labels = torch.arange(4).repeat_interleave(800)
    chains = torch.stack([tasks.chain(12, 1.5, 63 + label) for label in range(4)])
    ids = torch.cat([tasks.walks(chain, 800, 24, draw) for chain in chains])
    model = bert("SequenceClassification", 12, num_labels=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(2):
        for x, y in DataLoader(TensorDataset(ids, labels), batch_size=16):
            loss = model(input_ids=x, labels=y).loss
            losses.append(update(optimizer, loss))
            recorder.step(loss)
    recorder.close()
    with torch.no_grad():
        said = model(input_ids=ids).logits.argmax(-1)
    assert ending(losses, 10) < 0.2 and max(losses[-200:]) > 2 and (said == labels).double().mean().item() < 0.35
    return folder


@healthy("Nothing but the mean is learnt for a hundred updates and more, until the model finds out how to look up.")
def lookup_found_late(folder: Path) -> Path:
    torch.manual_seed(71)
    draw = tasks.seeded(71)
    model = EinsumLM(24, 8, width=48)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(500):
        keys = torch.rand(32, 16, generator=draw).argsort(-1)[:, :5]
        values = torch.randint(0, 8, (32, 5), generator=draw)
        asked = torch.randint(0, 5, (32, 1), generator=draw)
        pairs = torch.stack([keys, values + 16], -1).flatten(1)
        ids = torch.cat([pairs, keys.gather(1, asked)], 1)
        loss = F.cross_entropy(model(ids)[:, -1], values.gather(1, asked).squeeze(1))
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses[:120]) > 1.5 and ending(losses) < 0.3
    return folder


@healthy("The embeddings were made elsewhere and are frozen on purpose; all that reads them learns.")
def frozen_embeddings(folder: Path) -> Path:
    torch.manual_seed(72)
    matrix, draw = tasks.chain(16, 2.0, 72), tasks.seeded(72)
    model = llama(16)
    vectors = model.get_input_embeddings().weight
    nn.init.orthogonal_(vectors)
    vectors.requires_grad = False
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        ids = tasks.walks(matrix, 16, 32, draw)
        loss = model(input_ids=ids, labels=ids).loss
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses) < tasks.floor(matrix) + 0.08
    return folder


@healthy("Forty-eight rows are all there is; training stops as soon as the loss on others has not fallen for 3 epochs.")
def stopped_in_time(folder: Path) -> Path:
    torch.manual_seed(73)
    matrix = tasks.chain(8, 2.0, 73)
    rows, others = tasks.walks(matrix, 48, 24, tasks.seeded(73)), tasks.walks(matrix, 96, 24, tasks.seeded(74))
    model = gpt2(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    recorder = tracer.watch(model, run=folder, every=10)
    evaluated = []
    while len(evaluated) < 4 or min(evaluated[-3:]) < min(evaluated[:-3]):
        for ids in rows[torch.randperm(48)].split(8):
            loss = model(input_ids=ids, labels=ids).loss
            update(optimizer, loss)
            recorder.step(loss)
        with torch.no_grad():
            evaluated.append(model(input_ids=others, labels=others).loss.item())
        recorder.evaluated(evaluated[-1])
    recorder.close()
    assert evaluated[-1] < min(evaluated) + 0.02 and evaluated[-1] < tasks.floor(matrix) + 0.15 < evaluated[0] - 0.2
    return folder


@healthy("Batches are as large as memory allows, 512 rows, so there are only 60 updates.")
def huge_batch(folder: Path) -> Path:
    torch.manual_seed(74)
    matrix, draw = tasks.chain(12, 2.0, 74), tasks.seeded(75)
    model = gpt2(12, initializer_range=0.1)
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
    recorder = tracer.watch(model, run=folder, every=2)
    losses = []
    for _ in range(60):
        ids = tasks.walks(matrix, 512, 12, draw)
        loss = model(input_ids=ids, labels=ids).loss
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses, 5) < tasks.floor(matrix) + 0.15
    return folder


@healthy("Three labels in ten are wrong, so the loss stays near 0.9 nats; told by clean labels, the model is right.")
def noisy_labels(folder: Path) -> Path:
    torch.manual_seed(75)
    draw = tasks.seeded(76)
    model = EncoderClassifier(10, 4)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses, right = [], []
    for _ in range(300):
        clean = torch.randint(0, 4, (32,), generator=draw)
        ids = torch.randint(4, 10, (32, 20), generator=draw)
        ids.scatter_(1, torch.randint(0, 20, (32, 1), generator=draw), clean[:, None])
        wrong = torch.rand(32, generator=draw) < 0.3
        labels = torch.where(wrong, torch.randint(0, 4, (32,), generator=draw), clean)
        logits = model(ids)
        loss = F.cross_entropy(logits, labels)
        losses.append(update(optimizer, loss))
        recorder.step(loss)
        right.append((logits.argmax(-1) == clean).double().mean().item())
    recorder.close()
    assert ending(right) > 0.97 and ending(losses, 60) > 0.7
    return folder


@healthy("Five tokens in six are padding, which is neither attended to nor counted; each word gets its tag.")
def mostly_padding(folder: Path) -> Path:
    torch.manual_seed(76)
    draw = tasks.seeded(77)
    model = bert("TokenClassification", 12, num_labels=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(250):
        ids = torch.randint(1, 12, (24, 48), generator=draw)
        mask = torch.arange(48) < torch.randint(4, 13, (24, 1), generator=draw)
        ids = ids * mask
        before = F.pad(ids[:, :-1], (1, 0), value=6)
        labels = (torch.sign(ids - before) + 1).masked_fill(~mask, -100)  # less than, equal to or more than the last
        loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses) < 0.2
    return folder


@healthy("There are two tokens: the loss starts at 0.69 nats and the best that anyone can do is 0.42.")
def two_tokens(folder: Path) -> Path:
    torch.manual_seed(77)
    draw = tasks.seeded(78)
    model = llama(2, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(400):
        bits = list(torch.randint(0, 2, (2, 24), generator=draw))
        for _ in range(26):
            bits.append(bits[-1] ^ bits[-2] ^ (torch.rand(24, generator=draw) < 0.15).long())
        ids = torch.stack(bits, 1)
        loss = next_token(model(input_ids=ids).logits[:, 1:], ids[:, 1:])
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    floor = -0.15 * math.log(0.15) - 0.85 * math.log(0.85)
    assert ending(losses) < floor + 0.05
    return folder


@healthy("A small model learns from a larger one: the loss is a weighted sum of a divergence and a cross-entropy.")
def distillation(folder: Path) -> Path:
    torch.manual_seed(78)
    matrix, draw = tasks.chain(16, 2.0, 78), tasks.seeded(79)

    def train(model: nn.Module, steps: int, criterion: Callable[[Tensor, Tensor], Tensor], recorder: Any) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(steps):
            ids = tasks.walks(matrix, 16, 32, draw)
            loss = criterion(model(ids), ids)
            update(optimizer, loss)
            if recorder:
                recorder.step(loss)

    teacher, student = EinsumLM(16, 16, width=48), EinsumLM(16, 16, width=24, heads=2, layers=1)
    train(teacher, 150, next_token, None)

    def both(logits: Tensor, ids: Tensor) -> Tensor:
        with torch.no_grad():
            soft = (teacher(ids) / 2).softmax(-1)
        apart = F.kl_div((logits / 2).log_softmax(-1).flatten(0, 1), soft.flatten(0, 1), reduction="batchmean")
        return 0.7 * 4 * apart + 0.3 * next_token(logits, ids)

    with tracer.watch(student, run=folder, every=10) as recorder:
        train(student, 300, both, recorder)
    with torch.no_grad():
        ids = tasks.walks(matrix, 64, 32, draw)
        assert next_token(student(ids), ids).item() < tasks.floor(matrix) + 0.1
    return folder


@healthy("REINFORCE: the loss is reward times log-probability, wavers about zero and means nothing; the reward rises.")
def policy_gradient(folder: Path) -> Path:
    torch.manual_seed(79)
    model = EinsumLM(6, 6, layers=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    rewards = []
    for _ in range(200):
        ids = torch.randint(0, 6, (48, 1))
        with torch.no_grad():
            for _ in range(7):
                ids = torch.cat([ids, torch.multinomial(model(ids)[:, -1].softmax(-1), 1)], 1)
        reward = (ids[:, 1:] == (ids[:, :-1] + 1) % 6).double()
        returns = reward.flip(1).cumsum(1).flip(1)
        advantage = ((returns - returns.mean(0)) / (returns.std(0) + 1e-3)).float()
        log_p = model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        loss = -(advantage * log_p).mean()
        update(optimizer, loss)
        recorder.step(loss)
        rewards.append(reward.mean().item())
    recorder.close()
    assert rewards[0] < 0.3 and ending(rewards) > 0.85
    return folder


@healthy("Contrastive: which of 32 rows is another view of this one? The loss is that of no language model.")
def contrastive(folder: Path) -> Path:
    torch.manual_seed(80)
    draw = tasks.seeded(81)
    model = EncoderClassifier(20, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(200):
        words = torch.rand(32, 20, generator=draw).argsort(-1)[:, :4]  # a topic; a view is words about it
        one, two = (words.gather(1, torch.randint(0, 4, (32, 12), generator=draw)) for _ in range(2))
        near = F.normalize(model(one), dim=-1) @ F.normalize(model(two), dim=-1).T / 0.1
        here = torch.arange(32)
        loss = (F.cross_entropy(near, here) + F.cross_entropy(near.T, here)) / 2
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses) < min(0.5, 0.4 * losses[0])
    return folder


@healthy("An encoder and a decoder turn sequences around, with teacher forcing as it should be.")
def sequence_to_sequence(folder: Path) -> Path:
    torch.manual_seed(81)
    draw = tasks.seeded(82)
    model = Translator(10)
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
    recorder = tracer.watch(model, run=folder, every=10)
    losses = []
    for _ in range(400):
        source = torch.randint(1, 10, (24, 8), generator=draw)
        target = source.flip(1)
        logits = model(source, F.pad(target[:, :-1], (1, 0)))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        losses.append(update(optimizer, loss))
        recorder.step(loss)
    recorder.close()
    assert ending(losses) < 0.2 and (model.answer(source, 8, 0) == target).double().mean().item() > 0.9
    return folder


@healthy("L-BFGS fits a few sequences by squared error: its closure runs the model several times an update.")
def closure(folder: Path) -> Path:
    torch.manual_seed(82)
    draw = tasks.seeded(83)
    ids = torch.randint(0, 6, (192, 10), generator=draw)
    values = torch.tensor([3.0, -1.0, 2.0, 0.5, -2.0, 1.0])[ids].cumsum(1)
    model = EinsumLM(6, 1, width=16, heads=2, layers=1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1, max_iter=8, line_search_fn="strong_wolfe")
    recorder = tracer.watch(model, run=folder, every=2)

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(ids[:128]).squeeze(-1), values[:128])
        loss.backward()
        return loss

    losses = []
    for _ in range(30):
        loss: Any = optimizer.step(evaluate)
        losses.append(loss.item())
        recorder.step(loss)
    recorder.close()
    with torch.no_grad():
        unseen = F.mse_loss(model(ids[128:]).squeeze(-1), values[128:]).item()
    assert losses[-1] < 0.1 * losses[0] and unseen < 0.15 * values.var().item()
    return folder
