#include "model/modality.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace ballast {
namespace {

struct Hint {
  std::string_view text;
  Modality modality;
};

constexpr std::array kModalities{
    Hint{.text = "unknown", .modality = Modality::kUnknown}, Hint{.text = "text", .modality = Modality::kText},
    Hint{.text = "code", .modality = Modality::kCode},       Hint{.text = "image", .modality = Modality::kImage},
    Hint{.text = "audio", .modality = Modality::kAudio},
};

constexpr std::array kArchitectures{
    Hint{.text = "text", .modality = Modality::kText},      Hint{.text = "mdlm", .modality = Modality::kText},
    Hint{.text = "sedd", .modality = Modality::kText},      Hint{.text = "code", .modality = Modality::kCode},
    Hint{.text = "image", .modality = Modality::kImage},    Hint{.text = "dit", .modality = Modality::kImage},
    Hint{.text = "vae", .modality = Modality::kImage},      Hint{.text = "audio", .modality = Modality::kAudio},
    Hint{.text = "wavegrad", .modality = Modality::kAudio},
};

constexpr std::array kNameParts{
    Hint{.text = "embed_tokens", .modality = Modality::kText},
    Hint{.text = "lm_head", .modality = Modality::kText},
    Hint{.text = "self_attn", .modality = Modality::kText},
    Hint{.text = "mlp.gate", .modality = Modality::kText},
    Hint{.text = "mlp.up", .modality = Modality::kText},
    Hint{.text = "mlp.down", .modality = Modality::kText},
    Hint{.text = "layernorm", .modality = Modality::kText},
    Hint{.text = "rotary_emb", .modality = Modality::kText},
    Hint{.text = "wte", .modality = Modality::kText},
    Hint{.text = "wpe", .modality = Modality::kText},
    Hint{.text = "transformer.h.", .modality = Modality::kText},
    Hint{.text = "model.layers.", .modality = Modality::kText},
    Hint{.text = "conv_in", .modality = Modality::kImage},
    Hint{.text = "conv_out", .modality = Modality::kImage},
    Hint{.text = "down_blocks", .modality = Modality::kImage},
    Hint{.text = "up_blocks", .modality = Modality::kImage},
    Hint{.text = "mid_block", .modality = Modality::kImage},
    Hint{.text = "unet", .modality = Modality::kImage},
    Hint{.text = "vae.", .modality = Modality::kImage},
    Hint{.text = "patch_embed", .modality = Modality::kImage},
    Hint{.text = "to_rgb", .modality = Modality::kImage},
    Hint{.text = "mel", .modality = Modality::kAudio},
    Hint{.text = "spectrogram", .modality = Modality::kAudio},
    Hint{.text = "waveform", .modality = Modality::kAudio},
    Hint{.text = "audio_encoder", .modality = Modality::kAudio},
    Hint{.text = "vocoder", .modality = Modality::kAudio},
};

// Each tensor has one vote for each modality that its name suggests. The modality with most votes wins, on a tie the first one.
Modality vote(std::span<const TensorInfo> tensors) {
  std::array<std::size_t, kModalities.size()> votes{};
  for (const TensorInfo& tensor : tensors) {
    const std::string lower = lowercase(tensor.name);
    std::array<bool, kModalities.size()> hinted{};
    for (const Hint& hint : kNameParts) {
      if (lower.find(hint.text) != std::string::npos) hinted[static_cast<std::size_t>(hint.modality)] = true;
    }
    for (std::size_t i = 0; i < votes.size(); ++i) votes[i] += hinted[i] ? 1 : 0;
  }
  const auto most = std::ranges::max_element(votes);
  return *most == 0 ? Modality::kUnknown : static_cast<Modality>(most - votes.begin());
}

}  // namespace

std::string_view name(Modality modality) { return kModalities[static_cast<std::size_t>(modality)].text; }

Modality detect_modality(const Metadata& metadata, std::span<const TensorInfo> tensors) {
  if (const auto entry = metadata.find("modality"); entry != metadata.end()) {
    const auto named = std::ranges::find(kModalities, lowercase(entry->second), &Hint::text);
    if (named != kModalities.end()) return named->modality;
  }
  if (const auto entry = metadata.find("architecture"); entry != metadata.end()) {
    const std::string architecture = lowercase(entry->second);
    for (const Hint& hint : kArchitectures) {
      if (architecture.find(hint.text) != std::string::npos) return hint.modality;
    }
  }
  return vote(tensors);
}

}  // namespace ballast
