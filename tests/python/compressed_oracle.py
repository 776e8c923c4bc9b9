"""The package compressed-tensors as a judge: what it makes of the tensors of one module, and of a weight."""

import json

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam


def section_of(folder) -> dict:
    return json.loads((folder / "config.json").read_text())["quantization_config"]


def scheme_of(section: dict, module: str) -> tuple[str, QuantizationScheme]:
    """The scheme of a module, from a config that the package accepts."""
    config = QuantizationConfig.model_validate({name: value for name, value in section.items() if name != "version"})
    groups = config.config_groups.values()
    named = [group for group in groups if module in group.targets]
    return section["format"], (named or [group for group in groups if "Linear" in group.targets])[0]


def decompressed(tensors: dict[str, torch.Tensor], section: dict, module: str) -> torch.Tensor:
    form, scheme = scheme_of(section, module)
    return BaseCompressor.get_value_from_registry(form).decompress(dict(tensors), scheme)["weight"]


def ranges(dense: torch.Tensor, args) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and largest values that share a scale, in the shape of the scales."""
    strategy = getattr(args.strategy, "value", args.strategy)
    rows, columns = dense.shape
    if strategy == "tensor":
        return dense.amin().reshape(1), dense.amax().reshape(1)
    if strategy == "block":
        height, width = args.block_structure
        padded = torch.nn.functional.pad(dense, (0, -columns % width, 0, -rows % height))
        blocks = padded.reshape(-(-rows // height), height, -(-columns // width), width)
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = dense.reshape(rows, -1, args.group_size if "group" in strategy else columns)
    return groups.amin(-1), groups.amax(-1)


def compressed(dense: torch.Tensor, section: dict, module: str) -> dict[str, torch.Tensor]:
    """The tensors that the package stores, with its own scales."""
    form, scheme = scheme_of(section, module)
    args = scheme.weights
    whole = generate_gparam(dense.min(), dense.max()) if form.startswith("nvfp4") else None
    scale, zero = calculate_qparams(*ranges(dense, args), args, global_scale=whole)
    state = {"weight": dense, "weight_scale": scale, "weight_zero_point": zero}
    if whole is not None:
        state["weight_global_scale"] = whole
    return {name: tensor for name, tensor in BaseCompressor.get_value_from_registry(form).compress(state, scheme).items() if tensor is not None}
