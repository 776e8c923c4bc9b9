#include "scheme/mlx/mlx_lm.h"

#include <algorithm>
#include <array>

namespace ballast {
namespace {

using enum Rearrange;

constexpr MlxRule kRotary{.action = kDrop, .from = "*rotary_emb.inv_freq"};
constexpr MlxRule kConvolutions{.action = kConvolution, .from = "*conv1d.weight", .to = "*conv1d.weight"};
constexpr MlxRule kGate{.action = kKeep, .from = "*.mlp.gate.weight"};
constexpr MlxRule kSwitch{.action = kStack, .from = "*.mlp.experts.#.*", .to = "*.mlp.switch_mlp.*"};
constexpr MlxRule kExtraLayers{.action = kDropExtraLayer, .from = "model.layers.#.*"};

constexpr std::array kPlain{kRotary};
constexpr std::array kConvolutional{kConvolutions};
constexpr std::array kInternlm{MlxRule{.action = kDrop, .from = "*attention.rope.inv_freq"}, kRotary};
constexpr std::array kMimo{kRotary, MlxRule{.action = kDrop, .from = "model.mtp_layers.*"}};

constexpr std::array kGpt2{
    MlxRule{.action = kRename, .from = "transformer.*", .to = "*"},
    MlxRule{.action = kDrop, .from = "h.*.attn.bias"},
    MlxRule{.action = kDrop, .from = "h.*.attn.masked_bias"},
    MlxRule{.action = kTranspose, .from = "h.*.c_attn.weight", .to = "model.h.*.c_attn.weight"},
    MlxRule{.action = kTranspose, .from = "h.*.c_proj.weight", .to = "model.h.*.c_proj.weight"},
    MlxRule{.action = kTranspose, .from = "h.*.c_fc.weight", .to = "model.h.*.c_fc.weight"},
    MlxRule{.action = kRename, .from = "h.*", .to = "model.h.*"},
    MlxRule{.action = kRename, .from = "wte.*", .to = "model.wte.*"},
    MlxRule{.action = kRename, .from = "wpe.*", .to = "model.wpe.*"},
    MlxRule{.action = kRename, .from = "ln_f.*", .to = "model.ln_f.*"},
};
constexpr std::array kGptNeox{
    kRotary,
    MlxRule{.action = kDrop, .from = "*.attention.bias"},
    MlxRule{.action = kDrop, .from = "*.attention.masked_bias"},
    MlxRule{.action = kRename, .from = "gpt_neox.layers.*", .to = "model.h.*"},
    MlxRule{.action = kRename, .from = "gpt_neox.*", .to = "model.*"},
    MlxRule{.action = kRename, .from = "embed_out.*", .to = "model.embed_out.*"},
};

constexpr std::array kMixtral{
    kRotary,
    MlxRule{.action = kStack, .from = "*.block_sparse_moe.experts.#.w1.*", .to = "*.block_sparse_moe.switch_mlp.gate_proj.*"},
    MlxRule{.action = kStack, .from = "*.block_sparse_moe.experts.#.w2.*", .to = "*.block_sparse_moe.switch_mlp.down_proj.*"},
    MlxRule{.action = kStack, .from = "*.block_sparse_moe.experts.#.w3.*", .to = "*.block_sparse_moe.switch_mlp.up_proj.*"},
};
constexpr std::array kMoe{kRotary, kSwitch};
constexpr std::array kDeepseek{kRotary, kSwitch, kGate};
constexpr std::array kGlmMoe{kExtraLayers, kRotary, kSwitch, kGate};
constexpr std::array kExpertsInPlace{kRotary, kGate,
                                     MlxRule{.action = kStack, .from = "*.mlp.experts.#.*", .to = "*.mlp.experts.*"}};
constexpr std::array kErnieMoe{
    MlxRule{.action = kDrop, .from = "*mtp_block.*"},
    MlxRule{.action = kDrop, .from = "*mtp_linear_proj.*"},
    MlxRule{.action = kDrop, .from = "*mtp_hidden_norm.*"},
    MlxRule{.action = kDrop, .from = "*mtp_emb_norm.*"},
    MlxRule{.action = kDrop, .from = "*e_score_correction_bias"},
    kSwitch,
};
constexpr std::array kExaoneMoe{
    MlxRule{.action = kDrop, .from = "mtp.*"},
    MlxRule{.action = kRename, .from = "*.mlp.e_score_correction_bias", .to = "*.mlp.gate.e_score_correction_bias"},
    kSwitch,
    kGate,
};
constexpr std::array kGraniteMoe{
    MlxRule{.action = kHalves,
            .from = "*.block_sparse_moe.input_linear.weight",
            .to = "*.block_sparse_moe.switch_mlp.gate_proj.weight",
            .second = "*.block_sparse_moe.switch_mlp.up_proj.weight"},
    MlxRule{.action = kRename,
            .from = "*.block_sparse_moe.output_linear.weight",
            .to = "*.block_sparse_moe.switch_mlp.down_proj.weight"},
};
constexpr std::array kGptOss{
    MlxRule{.action = kAlternateTransposed,
            .from = "*.experts.gate_up_proj",
            .to = "*.experts.gate_proj.weight",
            .second = "*.experts.up_proj.weight"},
    MlxRule{.action = kAlternate,
            .from = "*.experts.gate_up_proj_bias",
            .to = "*.experts.gate_proj.bias",
            .second = "*.experts.up_proj.bias"},
    MlxRule{.action = kTranspose, .from = "*.experts.down_proj", .to = "*.experts.down_proj.weight"},
    MlxRule{.action = kRename, .from = "*.experts.down_proj_bias", .to = "*.experts.down_proj.bias"},
};
constexpr std::array kLlama4{
    MlxRule{.action = kDrop, .from = "*vision_model*"},
    MlxRule{.action = kDrop, .from = "*multi_modal_projector*"},
    MlxRule{.action = kHalvesTransposed,
            .from = "*.feed_forward.experts.gate_up_proj",
            .to = "*.feed_forward.experts.gate_proj.weight",
            .second = "*.feed_forward.experts.up_proj.weight"},
    MlxRule{.action = kTranspose, .from = "*.feed_forward.experts.down_proj", .to = "*.feed_forward.experts.down_proj.weight"},
};
constexpr std::array kJamba{kConvolutions,
                            MlxRule{.action = kStack, .from = "*.feed_forward.experts.#.*", .to = "*.feed_forward.switch_mlp.*"}};
constexpr std::array kNemotronH{
    MlxRule{.action = kDrop, .from = "mtp.*"},
    kConvolutions,
    MlxRule{.action = kStack, .from = "*.mixer.experts.#.down_proj.*", .to = "*.mixer.switch_mlp.fc2.*"},
    MlxRule{.action = kStack, .from = "*.mixer.experts.#.up_proj.*", .to = "*.mixer.switch_mlp.fc1.*"},
    MlxRule{.action = kKeep, .from = "*.mixer.gate.weight"},
};
constexpr std::array kLfm2{MlxRule{.action = kConvolution, .from = "*.conv.conv.weight", .to = "*.conv.conv.weight"}};
constexpr std::array kLfm2Moe{
    kLfm2.front(),
    MlxRule{.action = kRename, .from = "*.w1.weight", .to = "*.gate_proj.weight"},
    MlxRule{.action = kRename, .from = "*.w2.weight", .to = "*.down_proj.weight"},
    MlxRule{.action = kRename, .from = "*.w3.weight", .to = "*.up_proj.weight"},
    MlxRule{.action = kStack, .from = "*.feed_forward.experts.#.*", .to = "*.feed_forward.switch_mlp.*"},
};

constexpr MlxRule kNewLanguageModel{.action = kRename, .from = "model.language_model.*", .to = "language_model.model.*"};
constexpr MlxRule kNewHead{.action = kRename, .from = "lm_head.*", .to = "language_model.lm_head.*"};
constexpr std::array kWithTower{
    MlxRule{.action = kDrop, .from = "vision_tower.*"},
    MlxRule{.action = kDrop, .from = "model.vision_tower.*"},
    MlxRule{.action = kDrop, .from = "multi_modal_projector.*"},
    MlxRule{.action = kDrop, .from = "model.multi_modal_projector.*"},
    kNewLanguageModel,
    kNewHead,
    kRotary,
};
constexpr std::array kQwenVl{
    MlxRule{.action = kDrop, .from = "visual.*"},
    MlxRule{.action = kDrop, .from = "model.visual.*"},
    kNewLanguageModel,
    kNewHead,
    MlxRule{.action = kRename, .from = "model.*", .to = "language_model.model.*"},
};

constexpr std::string_view kSplitsKv = "mlx-lm splits kv_b_proj into embed_q and unembed_out";
constexpr std::string_view kAddsToNorms = "mlx-lm adds 1 to the weights of its norms and reorders its convolutions";
constexpr std::string_view kNormalizesHead = "mlx-lm normalizes its output layer";
constexpr std::string_view kOtherParts = "mlx-lm regroups its weights in a way that is not reproduced";

constexpr std::string_view kLanguageHead = "language_model.lm_head.weight";
constexpr std::string_view kLanguageEmbedding = "language_model.model.embed_tokens.weight";

// The architectures of mlx-lm 0.32.2, and the names that it maps to them.
constexpr std::array kArchitectures{
    MlxArchitecture{.model_type = "apertus"},
    MlxArchitecture{.model_type = "cohere", .rules = kPlain, .head = MlxHead::kTied},
    MlxArchitecture{.model_type = "cohere2", .rules = kPlain, .head = MlxHead::kTied},
    MlxArchitecture{.model_type = "deepseek", .rules = kDeepseek, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "deepseek_v2", .rules = kDeepseek, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "dots1", .rules = kExpertsInPlace},
    MlxArchitecture{.model_type = "ernie4_5", .rules = kPlain},
    MlxArchitecture{.model_type = "ernie4_5_moe", .rules = kErnieMoe},
    MlxArchitecture{.model_type = "exaone", .rules = kPlain, .embedding = "transformer.wte.weight"},
    MlxArchitecture{.model_type = "exaone4", .rules = kPlain},
    MlxArchitecture{.model_type = "exaone_moe", .rules = kExaoneMoe},
    MlxArchitecture{.model_type = "falcon_mamba", .rules = kConvolutional, .embedding = "backbone.embeddings.weight"},
    MlxArchitecture{.model_type = "gemma", .rules = kPlain, .head = MlxHead::kTied},
    MlxArchitecture{.model_type = "gemma2", .rules = kPlain, .head = MlxHead::kTied},
    MlxArchitecture{.model_type = "gemma3", .rules = kWithTower, .output_layer = kLanguageHead, .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "gemma3_text", .rules = kPlain},
    MlxArchitecture{.model_type = "glm", .rules = kPlain},
    MlxArchitecture{.model_type = "glm4", .rules = kPlain, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "glm4_moe", .rules = kGlmMoe, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "gpt2", .rules = kGpt2, .head = MlxHead::kTied, .embedding = "model.wte.weight"},
    MlxArchitecture{.model_type = "gpt_bigcode", .embedding = "transformer.wte.weight"},
    MlxArchitecture{.model_type = "gpt_neox",
                    .rules = kGptNeox,
                    .head = MlxHead::kAlways,
                    .output_layer = "model.embed_out.weight",
                    .embedding = "model.embed_in.weight"},
    MlxArchitecture{.model_type = "gpt_oss", .rules = kGptOss, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "granite", .rules = kPlain},
    MlxArchitecture{.model_type = "granitemoe", .rules = kGraniteMoe},
    MlxArchitecture{.model_type = "helium", .rules = kPlain},
    MlxArchitecture{.model_type = "hunyuan_v1_dense", .rules = kPlain},
    MlxArchitecture{.model_type = "internlm2",
                    .rules = kInternlm,
                    .output_layer = "output.weight",
                    .embedding = "model.tok_embeddings.weight"},
    MlxArchitecture{.model_type = "internlm3", .rules = kInternlm},
    MlxArchitecture{.model_type = "iquestcoder", .rules = kPlain},
    MlxArchitecture{.model_type = "jamba", .rules = kJamba},
    MlxArchitecture{.model_type = "Klear", .rules = kExpertsInPlace, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "lfm2", .rules = kLfm2, .head = MlxHead::kTied},
    MlxArchitecture{.model_type = "lfm2_moe", .rules = kLfm2Moe, .head = MlxHead::kTied},
    MlxArchitecture{.model_type = "llama", .rules = kPlain},
    MlxArchitecture{.model_type = "llama4",
                    .rules = kLlama4,
                    .head = MlxHead::kAlways,
                    .output_layer = kLanguageHead,
                    .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "llava", .rules = kWithTower, .output_layer = kLanguageHead, .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "mamba", .rules = kConvolutional, .embedding = "backbone.embeddings.weight"},
    MlxArchitecture{.model_type = "mamba2", .rules = kConvolutional, .embedding = "backbone.embeddings.weight"},
    MlxArchitecture{.model_type = "mellum", .rules = kMoe},
    MlxArchitecture{.model_type = "mimo", .rules = kMimo},
    MlxArchitecture{.model_type = "minicpm", .rules = kPlain, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "minicpm3", .rules = kPlain},
    MlxArchitecture{.model_type = "minimax", .rules = kMixtral},
    MlxArchitecture{.model_type = "minimax_m2", .rules = kMixtral},
    MlxArchitecture{.model_type = "ministral3", .rules = kPlain},
    MlxArchitecture{.model_type = "mistral", .rules = kPlain},
    MlxArchitecture{
        .model_type = "mistral3", .rules = kWithTower, .output_layer = kLanguageHead, .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "mixtral", .rules = kMixtral},
    MlxArchitecture{.model_type = "nemotron", .rules = kPlain},
    MlxArchitecture{
        .model_type = "nemotron_h", .rules = kNemotronH, .head = MlxHead::kAlways, .embedding = "backbone.embeddings.weight"},
    MlxArchitecture{.model_type = "nemotron-nas", .rules = kPlain},
    MlxArchitecture{.model_type = "olmo2", .rules = kPlain},
    MlxArchitecture{.model_type = "olmo3", .rules = kPlain},
    MlxArchitecture{.model_type = "olmoe", .rules = kMoe},
    MlxArchitecture{
        .model_type = "openelm", .embedding = "transformer.token_embeddings.weight", .tie_key = "share_input_output_layers"},
    MlxArchitecture{.model_type = "phi", .rules = kPlain, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "phi3", .rules = kPlain},
    MlxArchitecture{.model_type = "phimoe", .rules = kMixtral, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "qwen2", .rules = kPlain},
    MlxArchitecture{.model_type = "qwen2_5_vl", .rules = kQwenVl, .output_layer = kLanguageHead, .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "qwen2_moe", .rules = kMoe, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "qwen2_vl", .rules = kQwenVl, .output_layer = kLanguageHead, .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "qwen3", .rules = kPlain},
    MlxArchitecture{.model_type = "qwen3_moe", .rules = kMoe},
    MlxArchitecture{.model_type = "qwen3_vl", .rules = kQwenVl, .output_layer = kLanguageHead, .embedding = kLanguageEmbedding},
    MlxArchitecture{.model_type = "seed_oss", .rules = kPlain, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "smollm3", .rules = kPlain},
    MlxArchitecture{.model_type = "stablelm", .rules = kPlain, .head = MlxHead::kAlways},
    MlxArchitecture{.model_type = "starcoder2", .rules = kPlain},
    MlxArchitecture{.model_type = "telechat3", .rules = kPlain},
    MlxArchitecture{.model_type = "xverse", .rules = kPlain},

    MlxArchitecture{.model_type = "afm7", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "afmoe", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "baichuan_m1", .refusal = kNormalizesHead},
    MlxArchitecture{.model_type = "bailing_hybrid", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "bailing_moe", .refusal = kNormalizesHead},
    MlxArchitecture{.model_type = "bailing_moe_linear", .refusal = kNormalizesHead},
    MlxArchitecture{.model_type = "bailing_moe_v3", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "bitnet", .refusal = "mlx-lm packs its ternary weights"},
    MlxArchitecture{.model_type = "dbrx", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "deepseek_v3", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "deepseek_v32", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "deepseek_v41", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "deepseek_v41_text", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "falcon_h1", .refusal = "mlx-lm multiplies its weights by the multipliers of the config"},
    MlxArchitecture{.model_type = "gear", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "gemma3n", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "gemma4", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "gemma4_text", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "gemma4_unified", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "glm4_moe_lite", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "glm_moe_dsa", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "gptj", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "granitemoehybrid", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "hunyuan", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "iquestloopcoder", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "joyai_llm_flash", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "kimi_k2", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "kimi_k25", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "kimi_k3", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "kimi_linear", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "kimi_vl", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "laguna", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "lfm2-vl", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "lille-130m", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "llama4_text", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "longcat_flash", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "longcat_flash_ngram", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "mimo_v2_flash", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "minimax_m3_vl", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "mistral4", .refusal = kSplitsKv},
    MlxArchitecture{.model_type = "muse_glimmer", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "muse_spark", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "nanbeige", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "nanochat", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "olmo", .refusal = "mlx-lm reads only the layout of the hf_olmo package"},
    MlxArchitecture{.model_type = "olmo_hybrid", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "phi-msft", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "phi3small", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "phixtral", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "pixtral", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "plamo", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "plamo2", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "plamo3", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "prism_hadamard_qwen35", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "qwen", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "qwen3_5", .refusal = kAddsToNorms},
    MlxArchitecture{.model_type = "qwen3_5_moe", .refusal = kAddsToNorms},
    MlxArchitecture{.model_type = "qwen3_next", .refusal = kAddsToNorms},
    MlxArchitecture{.model_type = "qwen3_vl_moe", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "recurrent_gemma", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "rwkv7", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "solar_open", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "spark2_5", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "step3p5", .refusal = kAddsToNorms},
    MlxArchitecture{.model_type = "talkie", .refusal = kOtherParts},
    MlxArchitecture{.model_type = "youtu_llm", .refusal = kOtherParts},
};

}  // namespace

const MlxArchitecture* find_mlx_architecture(std::string_view model_type) {
  const auto found = std::ranges::find(kArchitectures, model_type, &MlxArchitecture::model_type);
  return found == kArchitectures.end() ? nullptr : &*found;
}

}  // namespace ballast
