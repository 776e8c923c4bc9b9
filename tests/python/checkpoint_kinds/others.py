"""Encoders, speech and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from layouts import write

from .base import F16, F32, Kind, Made, Shapes, fill, in_f32, plain, write_json
from .language import VOCAB, linear, norm

I64 = np.dtype(np.int64)


def conv(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def bert_shapes(prefix: str = "", *, pooler: bool = True) -> Shapes:
    root = f"{prefix}embeddings"
    shapes = {
        f"{root}.word_embeddings.weight": (VOCAB, 64),
        f"{root}.position_embeddings.weight": (128, 64),
        f"{root}.token_type_embeddings.weight": (2, 64),
    }
    shapes |= norm(f"{root}.LayerNorm", 64, bias=True)
    for i in range(2):
        layer = f"{prefix}encoder.layer.{i}"
        for name in ("query", "key", "value"):
            shapes |= linear(f"{layer}.attention.self.{name}", 64, 64, bias=True)
        shapes |= linear(f"{layer}.attention.output.dense", 64, 64, bias=True) | norm(f"{layer}.attention.output.LayerNorm", 64, bias=True)
        shapes |= linear(f"{layer}.intermediate.dense", 256, 64, bias=True) | linear(f"{layer}.output.dense", 64, 256, bias=True)
        shapes |= norm(f"{layer}.output.LayerNorm", 64, bias=True)
    return shapes | (linear(f"{prefix}pooler.dense", 64, 64, bias=True) if pooler else {})


def bert_config(model_type: str, architecture: str) -> dict:
    return {
        "architectures": [architecture], "model_type": model_type, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 256, "max_position_embeddings": 128, "vocab_size": VOCAB, "type_vocab_size": 2, "torch_dtype": "float32",
    }  # fmt: skip


def t5_shapes() -> Shapes:
    shapes: Shapes = {"shared.weight": (VOCAB, 64)}
    for side in ("encoder", "decoder"):
        for i in range(2):
            layer = f"{side}.block.{i}.layer"
            parts = ["0.SelfAttention"] + ["1.EncDecAttention"] * (side == "decoder")
            for part in parts:
                for name in "qkvo":
                    shapes |= linear(f"{layer}.{part}.{name}", 64, 64)
            last = len(parts)
            shapes |= linear(f"{layer}.{last}.DenseReluDense.wi", 256, 64) | linear(f"{layer}.{last}.DenseReluDense.wo", 64, 256)
            for j in range(last + 1):
                shapes |= norm(f"{layer}.{j}.layer_norm", 64)
        shapes |= {f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 4)} | norm(f"{side}.final_layer_norm", 64)
    return shapes


def seq2seq_shapes(root: str, *, learned: bool = True) -> Shapes:
    """Return the layers of BART and Whisper."""
    shapes: Shapes = {}
    for side in ("encoder", "decoder"):
        for i in range(2):
            layer = f"{root}.{side}.layers.{i}"
            for part in ["self_attn"] + ["encoder_attn"] * (side == "decoder"):
                for name in ("q_proj", "v_proj", "out_proj"):
                    shapes |= linear(f"{layer}.{part}.{name}", 64, 64, bias=True)
                shapes |= linear(f"{layer}.{part}.k_proj", 64, 64, bias=learned) | norm(f"{layer}.{part}_layer_norm", 64, bias=True)
            shapes |= (
                linear(f"{layer}.fc1", 256, 64, bias=True)
                | linear(f"{layer}.fc2", 64, 256, bias=True)
                | norm(f"{layer}.final_layer_norm", 64, bias=True)
            )
        shapes |= {f"{root}.{side}.embed_positions.weight": (64, 64)} | norm(f"{root}.{side}.layer_norm", 64, bias=True)
    return shapes


def bart_shapes() -> Shapes:
    return {"model.shared.weight": (VOCAB, 64), "final_logits_bias": (1, VOCAB)} | seq2seq_shapes("model")


def whisper_shapes() -> Shapes:
    shapes = (
        conv("model.encoder.conv1", 64, 8, 3) | conv("model.encoder.conv2", 64, 64, 3) | {"model.decoder.embed_tokens.weight": (VOCAB, 64)}
    )
    return shapes | seq2seq_shapes("model", learned=False)


def tower(root: str, *, cls: bool = True, vision: bool = True) -> Shapes:
    """Return one tower of CLIP or SigLIP."""
    shapes = {f"{root}.embeddings.position_embedding.weight": (17, 64)}
    if vision:
        shapes |= {f"{root}.embeddings.patch_embedding.weight": (64, 3, 8, 8)} | (
            {f"{root}.embeddings.class_embedding": (64,)} if cls else {}
        )
    else:
        shapes |= {f"{root}.embeddings.token_embedding.weight": (VOCAB, 64)}
    for i in range(2):
        layer = f"{root}.encoder.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= linear(f"{layer}.self_attn.{name}", 64, 64, bias=True)
        shapes |= linear(f"{layer}.mlp.fc1", 256, 64, bias=True) | linear(f"{layer}.mlp.fc2", 64, 256, bias=True)
        shapes |= norm(f"{layer}.layer_norm1", 64, bias=True) | norm(f"{layer}.layer_norm2", 64, bias=True)
    return shapes | norm(f"{root}.{'post_layernorm' if vision else 'final_layer_norm'}", 64, bias=True)


def clip_shapes() -> Shapes:
    shapes = (
        tower("vision_model") | tower("text_model", vision=False) | linear("visual_projection", 32, 64) | linear("text_projection", 32, 64)
    )
    return shapes | {"logit_scale": (), "text_model.embeddings.position_ids": (1, 17), "vision_model.embeddings.position_ids": (1, 17)}


def siglip_shapes() -> Shapes:
    shapes = tower("vision_model", cls=False) | tower("text_model", vision=False) | {"logit_scale": (1,), "logit_bias": (1,)}
    return shapes | {"vision_model.head.probe": (1, 1, 64), "vision_model.head.attention.in_proj_weight": (192, 64)}


def vit_shapes() -> Shapes:
    shapes = {"vit.embeddings.cls_token": (1, 1, 64), "vit.embeddings.position_embeddings": (1, 17, 64)} | norm(
        "vit.layernorm", 64, bias=True
    )
    shapes |= conv("vit.embeddings.patch_embeddings.projection", 64, 3, 8, 8) | linear("classifier", 10, 64, bias=True)
    for i in range(2):
        layer = f"vit.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            shapes |= linear(f"{layer}.attention.attention.{name}", 64, 64, bias=True)
        shapes |= linear(f"{layer}.attention.output.dense", 64, 64, bias=True) | linear(f"{layer}.intermediate.dense", 256, 64, bias=True)
        shapes |= (
            linear(f"{layer}.output.dense", 64, 256, bias=True)
            | norm(f"{layer}.layernorm_before", 64, bias=True)
            | norm(f"{layer}.layernorm_after", 64, bias=True)
        )
    return shapes


def wav2vec2_shapes() -> Shapes:
    root = "wav2vec2.encoder"
    shapes = {"wav2vec2.feature_extractor.conv_layers.0.conv.weight": (32, 1, 10), "wav2vec2.masked_spec_embed": (64,)}
    shapes |= norm("wav2vec2.feature_projection.layer_norm", 32, bias=True) | linear(
        "wav2vec2.feature_projection.projection", 64, 32, bias=True
    )
    shapes |= {f"{root}.pos_conv_embed.conv.weight_g": (1, 1, 16), f"{root}.pos_conv_embed.conv.weight_v": (64, 16, 16)} | linear(
        "lm_head", 32, 64, bias=True
    )
    for i in range(2):
        layer = f"{root}.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= linear(f"{layer}.attention.{name}", 64, 64, bias=True)
        shapes |= linear(f"{layer}.feed_forward.intermediate_dense", 256, 64, bias=True) | linear(
            f"{layer}.feed_forward.output_dense", 64, 256, bias=True
        )
        shapes |= norm(f"{layer}.layer_norm", 64, bias=True) | norm(f"{layer}.final_layer_norm", 64, bias=True)
    return shapes | norm(f"{root}.layer_norm", 64, bias=True)


def sentence_transformer(folder: Path) -> Made:
    """Three folders of which each has a part of the model."""
    folder.mkdir(parents=True)
    stored, head = (
        fill(bert_shapes() | {"embeddings.position_ids": (1, 128)}, F32, position_ids=I64),
        fill(linear("linear", 32, 64, bias=True), F32),
    )
    write(folder / "model.safetensors", stored, {"format": "pt"})
    parts = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Dense", "Dense")]
    modules = [{"idx": int(i), "name": i, "path": path, "type": f"sentence_transformers.models.{name}"} for i, path, name in parts]
    write_json(folder, {"config.json": bert_config("bert", "BertModel"), "modules.json": modules})
    write_json(folder, {"1_Pooling/config.json": {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}})
    write_json(folder, {"2_Dense/config.json": {"in_features": 64, "out_features": 32, "bias": True}})
    write(folder / "2_Dense" / "model.safetensors", head)
    return Made(folder, stored, in_f32(stored))


def _kind(name: str, shapes: Shapes, config: dict | None, dtype: np.dtype = F32, **more) -> Kind:
    return plain(name, lambda: fill(shapes, dtype, position_ids=I64), config, **more)


SPEECH = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "vocab_size": VOCAB,
}
OTHERS = [
    _kind("bert", bert_shapes("bert.") | {"bert.embeddings.position_ids": (1, 128)}, bert_config("bert", "BertForMaskedLM")),
    _kind("roberta", bert_shapes("roberta.", pooler=False), bert_config("roberta", "RobertaForMaskedLM")),
    _kind(
        "t5",
        t5_shapes(),
        {
            "architectures": ["T5ForConditionalGeneration"],
            "model_type": "t5",
            "d_model": 64,
            "d_ff": 256,
            "d_kv": 16,
            "num_heads": 4,
            "num_layers": 2,
            "vocab_size": VOCAB,
        },
    ),
    _kind("bart", bart_shapes(), SPEECH | {"architectures": ["BartForConditionalGeneration"], "model_type": "bart"}),
    _kind("whisper", whisper_shapes(), SPEECH, F16),
    _kind("vit", vit_shapes(), bert_config("vit", "ViTForImageClassification") | {"image_size": 32, "patch_size": 8}),
    _kind(
        "clip",
        clip_shapes(),
        {
            "architectures": ["CLIPModel"],
            "model_type": "clip",
            "projection_dim": 32,
            "text_config": {"hidden_size": 64},
            "vision_config": {"hidden_size": 64},
        },
    ),
    _kind(
        "siglip",
        siglip_shapes(),
        {
            "architectures": ["SiglipModel"],
            "model_type": "siglip",
            "text_config": {"hidden_size": 64},
            "vision_config": {"hidden_size": 64},
        },
    ),
    _kind("wav2vec2", wav2vec2_shapes(), bert_config("wav2vec2", "Wav2Vec2ForCTC") | {"vocab_size": 32}),
    Kind("sentence-transformers", sentence_transformer),
]
