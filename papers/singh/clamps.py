"""The three parts of the circuit, each held at what it would be if it were perfect, all functions of the row's tokens.

A and B are patterns. C, and B and C together, are losses of patterns: nothing of the model's own output is read.
"""

import torch

from .exemplars import L1, L2, QUERY, X2

HEAD = 0
"""The only head of layer 1 that writes in runs with clamps, as the authors have one; and of layer 0 that B reads."""
SHARP = 4.0
"""What B and C, held together, multiply the weight on the query's item by: low enough that a model begins near ln 2."""


def right(tokens):
    """Which label is the query's, 0 or 1, [batch]."""
    return (tokens[:, X2] == tokens[:, QUERY]).long()


def previous(head):
    """A held: a label looks at its item, an item at itself."""
    return torch.eye(head.pattern.shape[-1])[[at - at % 2 for at in range(head.pattern.shape[-1])]]


def own_token(head):
    """A held at the wrong place, as strictly: everything looks at itself."""
    return torch.eye(head.pattern.shape[-1])


def match(head):
    """B held: the query looks at the right label; what other places look at is never read, and stays."""
    if head.tokens.shape[1] <= QUERY:  # what is recorded on other tokens than rows
        return head.pattern
    at = torch.where(right(head.tokens) == 1, L2, L1)
    asked = torch.nn.functional.one_hot(at, head.pattern.shape[-1]).to(head.pattern)
    return torch.cat([head.pattern[:, :QUERY], asked[:, None], head.pattern[:, QUERY + 1 :]], 1)


def patterns(model, tokens):
    """Patterns of both layers, through which gradients flow, [batch head query_pos key_pos] each."""
    seen = {}

    def look(pattern, hook):
        seen[hook.layer()] = pattern

    model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_pattern", look) for layer in range(2)])
    return seen[0], seen[1]


def of_two(scores, tokens):
    """The loss of saying one of the row's two labels by their scores [batch, 2], at the query; 0 elsewhere."""
    loss = torch.nn.functional.cross_entropy(scores, right(tokens), reduction="none")
    return torch.nn.functional.pad(loss[:, None], (QUERY, 0))


def plain(logits, batch):
    """The loss of the model's own output, at the query."""
    loss = torch.nn.functional.cross_entropy(logits[:, QUERY], batch.targets[:, QUERY], reduction="none")
    return torch.nn.functional.pad(loss[:, None], (QUERY, 0))


def copy(logits, batch):
    """C held: the row's two labels are said by the scores that the head of layer 1 gives them, as the authors do it"""
    pattern = patterns(batch.model, batch.tokens)[1][:, HEAD, QUERY]
    return of_two(pattern[:, [L1, L2]].clamp(min=1e-30).log(), batch.tokens)


def match_and_copy(logits, batch):
    """B and C held: a label is said the more, the more it looks at the query's item, by a head of layer 0"""
    pattern = patterns(batch.model, batch.tokens)[0][:, HEAD]
    same = (batch.tokens == batch.tokens[:, QUERY:]).to(pattern)
    same[:, [L1, L2, QUERY]] = 0
    return of_two(SHARP * torch.einsum("blk,bk->bl", pattern[:, [L1, L2]], same), batch.tokens)
