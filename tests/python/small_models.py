"""Small models with what real ones are made of, and three steps of training them."""

import torch
import torch.nn.functional as F
from torch import nn


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16)
        self.drop, self.f = nn.Dropout(0.3), nn.Linear(16, 5)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)), inplace=True)
        x = F.relu(self.b2(self.c2(F.max_pool2d(x, 2))))
        return self.f(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(100, 32), nn.Parameter(torch.randn(16, 32) * 0.1)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.n1, self.n2, self.drop = nn.LayerNorm(32), nn.LayerNorm(32), nn.Dropout(0.1)
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 100)

    def forward(self, ids):
        x = self.embed(ids) + self.position
        q, k, v = self.qkv(self.n1(x)).view(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(a.transpose(1, 2).reshape(2, 16, 32)))
        x = x + self.drop(self.down(F.gelu(self.up(self.n2(x)))))
        return self.head(x)


torch.manual_seed(0)
IMAGES, LABELS = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
IDS = torch.randint(0, 100, (2, 16))
CHANNELS_LAST = dict(memory_format=torch.channels_last)


def cnn_loss(m, images=IMAGES):
    return F.cross_entropy(m(images), LABELS)


MODELS = {
    "cnn": (Cnn, cnn_loss),
    "cnn, channels last": (lambda: Cnn().to(**CHANNELS_LAST), lambda m: cnn_loss(m, IMAGES.to(**CHANNELS_LAST))),
    "transformer": (Block, lambda m: F.cross_entropy(m(IDS).view(-1, 100), IDS.view(-1))),
}


def train(make, loss_of, wrap):
    """Losses, parameters and buffers behind three steps; `wrap` gets the function that computes a loss, and the model."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(5)
    losses, step = [], None
    for _ in range(3):
        optimizer.zero_grad()
        step = step or wrap(lambda: loss_of(model), model)
        loss = step()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses + [p.detach() for p in model.parameters()] + list(model.buffers())
