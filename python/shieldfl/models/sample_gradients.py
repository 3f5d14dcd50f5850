"""Each sample's gradient, of a classifier's loss or a user's own; the trial whether a model mixes samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from shieldfl.errors import ParameterError, ShieldError

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Takes a model's outputs (N, ...) and targets (N, ...).

Returns the mean over the N samples, a tensor of one value.
"""


def mean_loss(loss: Loss | None, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs, targets) if loss is None else loss(outputs, targets)


def separate_loss(loss: Loss | None, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean of the losses that each sample has alone.

    Without a ``loss`` it is the cross-entropy, which mixes no samples.
    """
    if loss is None:
        return cross_entropy(outputs, targets)
    each = zip(torch.split(outputs, 1), torch.split(targets, 1), strict=True)
    return torch.stack([loss(output, target) for output, target in each]).mean()


def summed_loss(loss: Loss | None, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if loss is None:
        return cross_entropy(outputs, targets, reduction="sum")
    return loss(outputs, targets) * len(targets)


_TRIED = (2, 3)
"""Sizes of the batches that are compared with their samples alone."""
_TOLERANCE = 1e-3
"""Largest difference, relative to the norm, of values that are computed twice in float32."""
_LEAST = 1e-5
"""Largest difference of gradients that are only rounding, relative to the norm of all gradients."""

_Gradients = tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]
SampleGradients = Callable[[torch.Tensor, torch.Tensor], _Gradients]


def gradients_of_samples(model: nn.Module, loss: Loss | None = None) -> SampleGradients:
    """Return a function that differentiates the loss of each sample alone, by torch.func.

    The model sees each sample as a batch of one, in the mode that it is in. Whatever it computes, no gradient
    depends on another sample, and a gradient counts all uses of a parameter. What draws at random draws for
    each sample anew. A ``torch.autograd.Function`` with a ``vmap`` of its own sees all samples: what it does
    with them is not bounded.

    It takes features and targets (B, ...), B at least 1. It returns gradients (B, ...) by the name of each
    trained parameter, losses (B,) and outputs (B, ...). Raises ParameterError, which names the layer, where
    torch.func cannot differentiate the model or its loss.
    """
    names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    trained = {name: parameter.detach() for parameter, name in names.items()}
    # Each place of each layer once, whatever stands there: of a layer with two names torch would lose the
    # first value.
    tied, fixed = dict[str, str](), dict[str, torch.Tensor]()
    for head, layer in model.named_modules():
        fixed |= dict(layer.named_buffers(head, recurse=False, remove_duplicate=False))
        for place, parameter in layer.named_parameters(head, recurse=False, remove_duplicate=False):
            if parameter in names:
                tied[place] = names[parameter]

    def loss_of(
        parameters: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        used = fixed | {place: parameters[name] for place, name in tied.items()}
        outputs = functional_call(model, used, (sample.unsqueeze(0),), tie_weights=False)
        return mean_loss(loss, outputs, target.unsqueeze(0)), outputs.squeeze(0)

    differentiate = vmap(grad_and_value(loss_of, has_aux=True), in_dims=(None, 0, 0), randomness="different")

    def gradients(features: torch.Tensor, targets: torch.Tensor) -> _Gradients:
        # vmap has no rule for fused attention: it warns, and goes through the samples one by one.
        with named_failures(model, features, targets, loss), sdpa_kernel(SDPBackend.MATH):
            found, (losses, outputs) = differentiate(trained, features, targets)
        return found, losses, outputs

    return gradients


def batch_gradients(
    model: nn.Module, features: torch.Tensor, targets: torch.Tensor, loss: Loss | None = None
) -> tuple[dict[str, torch.Tensor | None], torch.Tensor]:
    """Return gradients of the mean of the samples' own losses, by trained parameter, and outputs.

    The gradient of an unused parameter is None.
    """
    outputs = model(features)
    mean = separate_loss(loss, outputs, targets)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not mean.requires_grad:
        return dict.fromkeys(trained), outputs
    found = torch.autograd.grad(mean, list(trained.values()), allow_unused=True)
    return dict(zip(trained, found, strict=True)), outputs.detach()


def check_all_used(gradients: Mapping[str, torch.Tensor | None]) -> None:
    unused = [name for name, gradient in gradients.items() if gradient is None]
    if unused:
        raise ParameterError(
            f"the parameter {unused[0]!r} is trained, and the loss does not depend on it: use it, leave it "
            "out, or freeze it by requires_grad_(False)"
        )


def check_samples_apart(
    model: nn.Module,
    features: torch.Tensor,
    targets: torch.Tensor,
    loss: Loss | None = None,
    *,
    need_all: bool = False,
) -> None:
    """Raise ParameterError unless a model treats two and three samples together as it treats each alone.

    Outputs and gradients of a batch are compared with those of each sample alone, with one seed for what
    draws at random. Of a model that draws in another order for a batch, they are compared in evaluation mode,
    and each sample's outputs beside different others in the model's own. With ``need_all`` each trained
    parameter must have a gradient. The message names the parameter or buffer that fails; neither the model
    nor torch's generator is changed.
    """
    on = features.device
    devices = [on.index or 0] if on.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), named_failures(model, features, targets, loss):
        tried = deepcopy(model)
        draws = _check_keeps_nothing(tried, features[: max(_TRIED)])
        try:
            _compare(tried, features, targets, loss, need_all)
        except ParameterError:
            if not draws:
                raise
            _check_neighbours(tried, features[: max(_TRIED)])
            _compare(tried.eval(), features, targets, loss, need_all)


def _check_keeps_nothing(model: nn.Module, features: torch.Tensor) -> bool:
    before = {name: one.clone() for name, one in model.named_buffers() if one.is_floating_point()}
    outputs = [_seeded_outputs(model, features, seed) for seed in (0, 0, 1)]
    for name, buffer in model.named_buffers():
        if name in before and not torch.equal(buffer, before[name]):
            raise ParameterError(
                f"the buffer {name!r} keeps a statistic from one batch to the next, which mixes samples: "
                "leave it out, or hold it fixed"
            )
    if not _is_close(outputs[0], outputs[1]):
        raise ParameterError(
            "the model keeps something from one batch to the next, which mixes samples: let it keep nothing"
        )
    return not _is_close(outputs[0], outputs[2])


def _check_neighbours(model: nn.Module, features: torch.Tensor) -> None:
    for seed in (0, 1):
        together = _seeded_outputs(model, features, seed)
        for place in range(len(features)):
            others = _seeded_outputs(model, features[[place] * len(features)], seed)
            if not _is_close(others[place], together[place]):
                raise _mixes(model)


def _mixes(model: nn.Module) -> ParameterError:
    return ParameterError(
        f"{_name_of(model, model)} gives a sample other outputs beside others than alone: replace what takes "
        "a mean, a norm or attention over the samples of a batch"
    )


def _compare(
    model: nn.Module, features: torch.Tensor, targets: torch.Tensor, loss: Loss | None, need_all: bool
) -> None:
    for count in _TRIED:
        batch = features[:count], targets[:count]
        torch.manual_seed(0)
        together, outputs = batch_gradients(model, *batch, loss)
        if need_all:
            check_all_used(together)
        torch.manual_seed(0)
        alone, _, outputs_alone = gradients_of_samples(model, loss)(*batch)
        if not _is_close(outputs_alone, outputs):
            raise _mixes(model)
        for place in range(len(batch[0])):
            same = [place] * len(batch[0])
            torch.manual_seed(0)
            beside, _, _ = gradients_of_samples(model, loss)(features[same], targets[same])
            _check_same(
                {name: gradients[place] for name, gradients in beside.items()},
                {name: gradients[place] for name, gradients in alone.items()},
                "of a sample depends on the others of its batch: take a function without an own vmap rule",
            )
        means = {name: gradients.mean(dim=0) for name, gradients in alone.items()}
        whole = {
            name: torch.zeros_like(means[name]) if one is None else one for name, one in together.items()
        }
        _check_same(
            means,
            whole,
            "of each sample alone does not add up to the batch's: let its layer treat samples on their own",
        )


def _check_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], said: str) -> None:
    norms = [one.norm() for one in expected.values()]
    least = _LEAST * float(torch.stack(norms).norm()) if norms else 0.0
    for name, one in expected.items():
        if not _is_close(found[name], one, least):
            raise ParameterError(f"the gradient of {name!r} {said}")


def _seeded_outputs(model: nn.Module, features: torch.Tensor, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        outputs: torch.Tensor = model(features)
    return outputs


def _is_close(one: torch.Tensor, other: torch.Tensor, least: float = 0.0) -> bool:
    norm = float(other.norm())
    if not math.isfinite(norm):
        return True  # Nothing to compare: training says that it diverged.
    return one.shape == other.shape and float((one - other).norm()) <= _TOLERANCE * norm + least


def _name_of(layer: nn.Module, model: nn.Module) -> str:
    names = {id(one): name for name, one in model.named_modules()}
    name = names.get(id(layer), "")
    return f"layer {name!r} ({type(layer).__name__})" if name else f"the model ({type(model).__name__})"


@contextmanager
def named_failures(
    model: nn.Module, features: torch.Tensor, targets: torch.Tensor, loss: Loss | None
) -> Iterator[None]:
    """Turn what a model or loss raises as samples are differentiated into a ParameterError with the layer."""
    try:
        yield
    except ShieldError:
        raise
    except Exception as error:  # whatever a user's model or loss raises
        why = None if loss is not None else _why_no_labels(model, features, targets)
        raise ParameterError(
            why
            or f"{where_raised(error, model)}, or the loss, cannot be differentiated for each sample on its "
            f"own ({first_line(error)}). Torch's recurrent layers, statistics of a batch, checkpointing, "
            "branches on values and scripted modules cannot be: choose another layer, or a method without "
            "gradients of single samples"
        ) from error


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200].rstrip('.')}"


def where_raised(error: Exception, model: nn.Module) -> str:
    layers, raised_in, trace = set(map(id, model.modules())), model, error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in layers:
            raised_in = owner
        trace = trace.tb_next
    return _name_of(raised_in, model)


def _why_no_labels(model: nn.Module, batch: torch.Tensor, targets: torch.Tensor) -> str | None:
    with suppress(Exception), torch.no_grad():
        classes = model(batch).shape[1]
        wrong = targets[(targets < 0) | (targets >= classes)]
        if len(wrong):
            return (
                f"a label is {int(wrong.flatten()[0])}, and the model has {classes} outputs: labels count "
                f"classes from 0 to {classes - 1}"
            )
    return None
