"""The transformer, its tokenizer and its adapters, and how these are trained and evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import torch
from peft import (
    LoraConfig,
    PeftModel,
    TaskType,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from lora_text.sentences import WORDS, Samples

BATCH = 16
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@cache
def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return what makes numbers of words.

    Of a pretrained model it is ``AutoTokenizer.from_pretrained("bert-base-uncased")``.
    """
    numbers = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def make_base() -> BertForSequenceClassification:
    """Return a transformer that has learnt nothing yet; call this after a seed, since all parties need the same one.

    A pretrained one is ``AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=2)``, from
    the disk of each client. Nothing else changes.
    """
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        initializer_range=0.125,  # 1 / sqrt(64): the usual 0.02 is for layers that are much wider
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def make_model(rank: int) -> PeftModel:
    """Return the frozen transformer with adapters beside its linear layers, and a classifier; both are trained."""
    torch.manual_seed(0)
    adapters = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        modules_to_save=["classifier"],
    )
    return get_peft_model(make_base(), adapters)


def adapters_of(model: PeftModel) -> dict[str, torch.Tensor]:
    """Return what is trained and sent, by name: the adapters' two matrices for each layer, and the classifier."""
    return get_peft_model_state_dict(model, save_embedding_layers=False)


def load_adapters(model: PeftModel, arrays: Mapping[str, torch.Tensor]) -> None:
    """Put into the model what :func:`adapters_of` returned of another. Raises ValueError for other names."""
    if set(arrays) != set(adapters_of(model)):
        raise ValueError("these are not the adapters of this model")
    set_peft_model_state_dict(model, dict(arrays))


def _batches(samples: Samples, order: list[int]) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    for start in range(0, len(order), BATCH):
        chosen = [samples[index] for index in order[start : start + BATCH]]
        tokens = make_tokenizer()([sentence for sentence, _ in chosen], padding=True, return_tensors="pt")
        yield tokens, torch.tensor([label for _, label in chosen])


def train(model: PeftModel, samples: Samples, epochs: int, learning_rate: float, seed: int) -> float:
    """Train in place; return the mean loss of the last epoch."""
    torch.manual_seed(seed)  # for the order, and for dropout
    model.train()
    trained = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=learning_rate)
    mean = 0.0
    for _ in range(epochs):
        losses = []
        for tokens, labels in _batches(samples, torch.randperm(len(samples)).tolist()):
            optimiser.zero_grad()
            loss = model(**tokens, labels=labels).loss
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        mean = sum(losses) / len(losses)
    return mean


def evaluate(model: PeftModel, samples: Samples) -> tuple[float, float]:
    """Return loss and accuracy."""
    model.eval()
    loss = right = 0.0
    with torch.no_grad():
        for tokens, labels in _batches(samples, list(range(len(samples)))):
            scores = model(**tokens).logits
            loss += torch.nn.functional.cross_entropy(scores, labels, reduction="sum").item()
            right += (scores.argmax(1) == labels).sum().item()
    return loss / len(samples), right / len(samples)
