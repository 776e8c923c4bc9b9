#include "scheme/mlx/arrange.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/arranged_source.h"
#include "scheme/matrix.h"
#include "scheme/mlx/mlx_lm.h"
#include "scheme/mlx/name_pattern.h"

namespace ballast {
namespace {

constexpr std::string_view kOtherFormat = "use the parquet format";

// A tensor of the arranged model, and what it is made of.
struct Output {
  ArrangedTensor tensor;
  std::map<std::uint64_t, const TensorInfo*> stack;  // by number, if it is a stack
  bool keep = false;                                 // mlx-lm cannot hold it quantized
};

// The first few names, quoted.
std::string list_names(std::span<const std::string> names) {
  constexpr std::size_t kFew = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kFew); ++i) text += (i > 0 ? ", " : "") + quote(names[i]);
  return names.size() > kFew ? text + ", ..." : text;
}

Result<bool> has_same_bytes(const Model& model, const TensorInfo& a, const TensorInfo& b) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  if (a.dtype != b.dtype || !std::ranges::equal(a.shape, b.shape)) return false;
  std::vector<std::byte> left(std::min(kPiece, a.bytes()));
  std::vector<std::byte> right(left.size());
  for (std::uint64_t offset = 0; offset < a.bytes(); offset += kPiece) {
    const std::size_t bytes = std::min(kPiece, a.bytes() - offset);
    TRY(model.read_into(a.name, offset, std::span(left).first(bytes)));
    TRY(model.read_into(b.name, offset, std::span(right).first(bytes)));
    if (std::memcmp(left.data(), right.data(), bytes) != 0) return false;
  }
  return true;
}

// The setting that ties the output layer to the embedding.
struct TieSetting {
  std::optional<bool> value;
  bool nested = false;  // the config has a section for the language model, where it would be
};

TieSetting find_tie(const ModelConfig& config, std::string_view key) {
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, config.json);
  TieSetting setting;
  if (!root) return setting;
  simdjson::dom::element section;
  setting.nested = (*root)["text_config"].get(section) == simdjson::SUCCESS;
  bool value = false;
  const bool is_set =
      (setting.nested && section[key].get(value) == simdjson::SUCCESS) || (*root)[key].get(value) == simdjson::SUCCESS;
  if (is_set) setting.value = value;
  return setting;
}

bool names_own_code(const ModelConfig& config) {
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, config.json);
  simdjson::dom::element value;
  return root && (*root)["model_file"].get(value) == simdjson::SUCCESS && !value.is_null();
}

class Arranger {
 public:
  Arranger(const Model& model, const MlxArchitecture& architecture)
      : model_(model), config_(*model.config()), architecture_(architecture) {}

  Result<MlxArrangement> run() {
    for (const TensorInfo& tensor : model_.tensors()) TRY(place(tensor));
    for (Output& output : outputs_) TRY(finish_stack(output));
    note_changes();
    TRY(arrange_head());
    for (const Output& output : outputs_) {
      list_unquantized(output);
      list_renamed(output);
    }
    for (const std::string& name : done_.left_out) done_.renamed.try_emplace(name);
    if (changed_ > 0 || !done_.left_out.empty() || outputs_.size() != model_.tensors().size()) {
      std::vector<ArrangedTensor> tensors;
      for (Output& output : outputs_) tensors.push_back(std::move(output.tensor));
      done_.model = TRY(arrange(model_, std::move(tensors)));
    }
    return std::move(done_);
  }

 private:
  std::unexpected<Error> fail_tensor(std::string_view tensor, const std::string& message) const {
    return fail(Errc::kUnsupported, "{}: tensor {}: {}", escape(model_.path()), quote(tensor), message);
  }

  // Applies the rules to one tensor of the original.
  Result<void> place(const TensorInfo& tensor) {
    std::string name(tensor.name);
    bool keep = false;
    for (const MlxRule& rule : architecture_.rules) {
      const std::string before = name;  // that the texts of the match point into
      const auto found = match_mlx_name(rule.from, before);
      if (!found) continue;
      switch (rule.action) {
        case Rearrange::kKeep: keep = true; continue;
        case Rearrange::kRename: name = fill_mlx_name(rule.to, *found); continue;
        case Rearrange::kDropExtraLayer:
          if (!config_.num_hidden_layers || *found->number < *config_.num_hidden_layers) continue;
          [[fallthrough]];
        case Rearrange::kDrop: done_.left_out.emplace_back(tensor.name); return {};
        default: return rearrange(tensor, rule, *found, keep);
      }
    }
    add(tensor, std::move(name), StridedView::whole(tensor.shape), keep);
    return {};
  }

  Result<void> rearrange(const TensorInfo& tensor, const MlxRule& rule, const MlxMatch& match, bool keep) {
    const std::string name = fill_mlx_name(rule.to, match);
    const StridedView whole = StridedView::whole(tensor.shape);
    const std::size_t rank = tensor.shape.size();
    if (rule.action == Rearrange::kStack) {
      stack(tensor, name, *match.number, keep);
      return {};
    }
    if (rule.action == Rearrange::kConvolution) {
      add(tensor, name, rank == 3 && tensor.shape[2] != 1 ? whole.transposed() : whole, keep);
      return {};
    }
    if (rank < 2)
      return fail_tensor(tensor.name, fmt::format("shape is {}, expected two or more dimensions", to_string(tensor.shape)));
    if (rule.action == Rearrange::kTranspose) {
      add(tensor, name, whole.transposed(), keep);
      return {};
    }
    const std::size_t axis = rank - (rule.action == Rearrange::kHalves ? 2 : 1);
    const std::uint64_t size = tensor.shape[axis];
    if (size % 2 != 0) {
      return fail_tensor(tensor.name, fmt::format("shape is {}, cannot split {} in two", to_string(tensor.shape), size));
    }
    const bool alternate = rule.action == Rearrange::kAlternate || rule.action == Rearrange::kAlternateTransposed;
    const bool transposed = rule.action == Rearrange::kHalvesTransposed || rule.action == Rearrange::kAlternateTransposed;
    for (const std::uint64_t part : {0U, 1U}) {
      const StridedView view =
          alternate ? whole.every(axis, part, 2, size / 2) : whole.every(axis, part * (size / 2), 1, size / 2);
      add(tensor, part == 0 ? name : fill_mlx_name(rule.second, match), transposed ? view.transposed() : view, keep);
    }
    return {};
  }

  void add(const TensorInfo& tensor, std::string name, StridedView view, bool keep) {
    if (name != tensor.name || !view.is_whole(tensor.shape) || !std::ranges::equal(view.shape, tensor.shape)) ++changed_;
    outputs_.push_back(
        {.tensor = {.name = std::move(name), .parts = {&tensor}, .view = std::move(view)}, .stack = {}, .keep = keep});
  }

  void stack(const TensorInfo& tensor, const std::string& name, std::uint64_t number, bool keep) {
    ++changed_;
    const auto [place, is_new] = stacks_.try_emplace(name, outputs_.size());
    if (is_new) {
      outputs_.push_back({.tensor = {.name = name, .parts = {}, .view = StridedView::whole(tensor.shape), .stacked = true},
                          .stack = {},
                          .keep = keep});
    }
    outputs_[place->second].stack[number] = &tensor;
  }

  // Puts the tensors of a stack in order. Their numbers are 0 and up, and they have one dtype and shape.
  Result<void> finish_stack(Output& output) {
    const TensorInfo* first = nullptr;
    for (const auto& [number, tensor] : output.stack) {
      if (number != output.tensor.parts.size()) {
        return fail_tensor(tensor->name, fmt::format("cannot stack the experts for mlx-lm: number {} is missing; {}",
                                                     output.tensor.parts.size(), kOtherFormat));
      }
      if (first == nullptr) first = tensor;
      if (tensor->dtype != first->dtype || !std::ranges::equal(tensor->shape, first->shape)) {
        return fail_tensor(tensor->name, fmt::format("cannot stack the experts for mlx-lm: {} {}, but {} is {} {}; {}",
                                                     name(tensor->dtype), to_string(tensor->shape), quote(first->name),
                                                     name(first->dtype), to_string(first->shape), kOtherFormat));
      }
      output.tensor.parts.push_back(tensor);
    }
    return {};
  }

  void note_changes() {
    if (!done_.left_out.empty()) {
      const std::size_t count = done_.left_out.size();
      done_.notes.push_back(fmt::format("left out {} that mlx-lm does not load: {}",
                                        count == 1 ? "a tensor" : fmt::format("{} tensors", count), list_names(done_.left_out)));
    }
    if (changed_ == 0) return;
    const auto count = static_cast<std::size_t>(std::ranges::count_if(outputs_, [](const Output& output) {
      const TensorInfo& first = *output.tensor.parts.front();
      return output.tensor.stacked || output.tensor.name != first.name || !output.tensor.view.is_whole(first.shape) ||
             !std::ranges::equal(output.tensor.view.shape, first.shape);
    }));
    done_.notes.push_back(
        fmt::format("arranged {} of {} tensors as mlx-lm has them, by names and shapes", count, outputs_.size()));
  }

  Output* find(std::string_view name) {
    const auto found =
        std::ranges::find(outputs_, name, [](const Output& output) -> std::string_view { return output.tensor.name; });
    return found == outputs_.end() ? nullptr : &*found;
  }

  // Makes the output layer what mlx-lm expects: absent if it is tied to the embedding, and the config says so; or present.
  Result<void> arrange_head() {
    const Output* const embedding = find(architecture_.embedding);
    if (embedding == nullptr) return {};
    const Output* const head = find(architecture_.output_layer);
    const TieSetting setting = find_tie(config_, architecture_.tie_key);
    const auto is_same = [&] { return has_same_bytes(model_, *head->tensor.parts.front(), *embedding->tensor.parts.front()); };
    const bool is_tied = setting.value ? *setting.value : head == nullptr || TRY(is_same());
    switch (architecture_.head) {
      case MlxHead::kByConfig:
        if (is_tied && head != nullptr) leave_out_head();
        if (!setting.value && !setting.nested) set_tie(is_tied);
        return {};
      case MlxHead::kTied:
        if (head == nullptr) return {};
        if (!is_tied && !TRY(is_same())) {
          return fail_tensor(
              head->tensor.name,
              fmt::format("mlx-lm uses the embedding of model_type {} as its output layer, but the values differ; {}",
                          quote(architecture_.model_type), kOtherFormat));
        }
        leave_out_head();
        return {};
      case MlxHead::kAlways:
        if (head != nullptr) return {};
        copy_embedding(*embedding);
        if (is_tied) set_tie(false);
        return {};
    }
    return {};
  }

  void leave_out_head() {
    const auto head = outputs_.begin() + (find(architecture_.output_layer) - outputs_.data());
    done_.left_out.emplace_back(head->tensor.parts.front()->name);
    done_.notes.push_back(
        fmt::format("left out {}: mlx-lm uses the embedding as the output layer", quote(head->tensor.parts.front()->name)));
    outputs_.erase(head);
  }

  void copy_embedding(const Output& embedding) {
    done_.notes.push_back(
        fmt::format("stored the embedding also as {}, which mlx-lm requires", quote(architecture_.output_layer)));
    Output head = embedding;
    head.tensor.name = architecture_.output_layer;
    outputs_.push_back(std::move(head));
  }

  void set_tie(bool is_tied) {
    const std::string_view value = is_tied ? "true" : "false";
    done_.config.emplace_back(architecture_.tie_key, value);
    done_.notes.push_back(fmt::format("set {} to {} in config.json, for mlx-lm", architecture_.tie_key, value));
  }

  void list_unquantized(const Output& output) {
    constexpr std::string_view kWeight = ".weight";
    const ArrangedTensor& tensor = output.tensor;
    const bool is_matrix = is_quantizable(*tensor.parts.front()) || tensor.stacked;
    if (is_matrix && (output.keep || !tensor.name.ends_with(kWeight))) done_.unquantized.push_back(tensor.name);
  }

  void list_renamed(const Output& output) {
    const ArrangedTensor& tensor = output.tensor;
    for (const TensorInfo* const part : tensor.parts) {
      std::vector<std::string>& names = done_.renamed[std::string(part->name)];
      if (!tensor.stacked) names.push_back(tensor.name);
    }
  }

  const Model& model_;
  const ModelConfig& config_;
  const MlxArchitecture& architecture_;
  std::vector<Output> outputs_;
  std::map<std::string, std::size_t> stacks_;  // names and places in outputs_
  std::size_t changed_ = 0;                    // tensors of the original that have another name, shape or place
  MlxArrangement done_;
};

}  // namespace

Result<MlxArrangement> arrange_for_mlx_lm(const Model& model) {
  MlxArrangement none;
  if (!model.config() || model.config()->model_type.empty() || names_own_code(*model.config())) return none;
  const std::string& type = model.config()->model_type;
  const MlxArchitecture* const architecture = find_mlx_architecture(type);
  if (architecture == nullptr) {
    none.notes.push_back(fmt::format("mlx-lm has no architecture {}; MLX loads the weights as arrays", quote(type)));
    return none;
  }
  if (!architecture->refusal.empty()) {
    return fail(Errc::kUnsupported, "{}: cannot quantize model_type {} for mlx-lm: {}; {}", escape(model.path()), quote(type),
                architecture->refusal, kOtherFormat);
  }
  return Arranger(model, *architecture).run();
}

bool is_arranged_name(std::string_view model_type, std::string_view name) {
  const MlxArchitecture* const architecture = find_mlx_architecture(model_type);
  return architecture != nullptr && std::ranges::any_of(architecture->rules, [&](const MlxRule& rule) {
           return (!rule.to.empty() && rule.to != "*" && rule.to != rule.from && match_mlx_name(rule.to, name)) ||
                  (!rule.second.empty() && match_mlx_name(rule.second, name));
         });
}

}  // namespace ballast
