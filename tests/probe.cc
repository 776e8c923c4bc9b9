// Answers each line of standard input with one line of JSON:
//   open strict|reference PATH   every tensor and the metadata of a file, or why it was refused
//   slice PATH NAME [SLICES]     a part of one tensor
//   convert FROM TO BYTES        values of one dtype as another, and the losses
//   format DTYPE BYTES           values as MLX JSON writes them
//   quantized PATH               every quantized weight of a directory, and the names of the other tensors
//   dequantize PATH NAME DTYPE   the values of one of them
//   sign URL TIME KEY SECRET REGION [TOKEN]   the headers of a signed GET request to S3
//   statistics PATH GROUPS       statistics of inputs, and where that many groups of timesteps begin
//   logits PATH TOKENS           what a language model predicts after each token of the first window, as F32
// Paths and names must not contain white space; bytes are hexadecimal.

#include <algorithm>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ballast/convert.h>
#include <ballast/model.h>
#include <ballast/quantized_weights.h>
#include <ballast/tokens.h>
#include <ballast/weights.h>

#include "calibrate/forward/forward_pass.h"
#include "calibrate/statistics.h"
#include "calibrate/time_groups.h"
#include "format/mlx_json/values.h"
#include "source/remote/sigv4.h"
#include "tests/support/probe.h"

namespace {

using ballast::Errc;
using ballast::Result;
using ballast::test::from_hex;
using ballast::test::hex;
using ballast::test::probe_name;
using nlohmann::json;

// A file that opens must be readable, so a failure to read has a code of its own.
std::unexpected<ballast::Error> unreadable(std::string message) {
  return std::unexpected(ballast::Error{.code = Errc::kIo, .message = std::move(message)});
}

Result<json> contents(const std::string& path, ballast::Strictness strictness) {
  const auto model = ballast::Model::open(path, {.access = ballast::Access::kMmap, .strictness = strictness});
  if (!model) return std::unexpected(model.error());

  json tensors = json::array();
  for (const ballast::TensorInfo& tensor : model->tensors()) {
    const auto copy = model->read(tensor.name);
    if (!copy)
      return model->format() == ballast::Format::kMlxJson ? std::unexpected(copy.error()) : unreadable(copy.error().message);
    tensors.push_back({copy->name(), ballast::name(copy->dtype()), copy->shape(), hex(copy->bytes())});
    const auto view = model->view(tensor.name);
    if (!view && model->format() == ballast::Format::kMlxJson) continue;
    if (!view) return unreadable(view.error().message);
    const bool same = view->name == copy->name() && view->dtype == copy->dtype() &&
                      std::ranges::equal(view->shape, copy->shape()) && std::ranges::equal(view->bytes, copy->bytes());
    if (!same) return unreadable("view() and read() differ");
  }
  return json{{"metadata", model->metadata()}, {"tensors", std::move(tensors)}};
}

Result<json> part(const std::string& path, const std::string& tensor, const std::string& text) {
  const auto slices = text.empty() ? Result<std::vector<ballast::Slice>>{} : ballast::parse_slices(text);
  if (!slices) return std::unexpected(slices.error());
  const auto model = ballast::Model::open(path);
  if (!model) return std::unexpected(model.error());
  const auto slice = model->slice(tensor, *slices);
  if (!slice) return std::unexpected(slice.error());
  return json{{"shape", slice->shape()}, {"bytes", hex(slice->bytes())}};
}

Result<json> converted(std::string_view from_name, std::string_view to_name, std::string_view text) {
  const ballast::DType from = ballast::parse_dtype(from_name).value();
  const ballast::DType to = ballast::parse_dtype(to_name).value();
  const std::vector<std::byte> in = from_hex(text);
  std::vector<std::byte> out(in.size() * bits(to) / bits(from));
  const auto loss = ballast::convert_values(from, in, to, out);
  if (!loss) return std::unexpected(loss.error());
  return json{{"bytes", hex(out)}, {"lost", loss->count}, {"first", loss->first}};
}

Result<json> formatted(std::string_view dtype, std::string_view digits) {
  std::string text;
  ballast::mlx_json::append_values(ballast::parse_dtype(dtype).value(), from_hex(digits), text);
  return json{{"text", std::move(text)}};
}

Result<json> quantized(const std::string& path) {
  const auto weights = ballast::load_quantized_weights(path);
  if (!weights) return std::unexpected(weights.error());
  json found = json::object();
  for (const ballast::QuantizedWeight& weight : weights->weights()) {
    found[std::string(weight.name)] = {{"shape", weight.shape},
                                       {"dtype", ballast::name(weight.dtype)},
                                       {"bits", weight.bits},
                                       {"group_size", weight.group_size},
                                       {"mode", name(weight.mode)},
                                       {"packed", hex(weight.packed.bytes)},
                                       {"scales", hex(weight.scales.bytes)}};
    if (weight.biases) found[std::string(weight.name)]["biases"] = hex(weight.biases->bytes);
  }
  json others = json::array();
  for (const ballast::TensorView& tensor : weights->others()) others.push_back(tensor.name);
  return json{{"weights", std::move(found)}, {"others", std::move(others)}};
}

Result<json> dequantized(const std::string& path, const std::string& weight, std::string_view dtype) {
  const auto weights = ballast::load_quantized_weights(path);
  if (!weights) return std::unexpected(weights.error());
  const auto values = weights->dequantize(weight, ballast::parse_dtype(dtype).value());
  if (!values) return std::unexpected(values.error());
  return json{{"shape", values->shape()}, {"bytes", hex(values->bytes())}};
}

Result<json> statistics_of(const std::string& path, unsigned most_groups) {
  constexpr unsigned kAllTimesteps = 100'000;
  const auto statistics = ballast::Statistics::open(path, kAllTimesteps);
  if (!statistics) return std::unexpected(statistics.error());
  json found = json::object();
  ballast::TimeGroups groups;
  for (const std::string& weight : statistics->weights()) {
    const auto layer = statistics->read(weight);
    if (!layer) return std::unexpected(layer.error());
    groups.add(*layer);
    found[weight] = {{"importance", layer->importance}, {"weights", layer->weights}, {"means", layer->means}};
  }
  return json{{"timesteps", statistics->timesteps()}, {"weights", std::move(found)}, {"groups", groups.cut(most_groups)}};
}

Result<json> logits_of(const std::string& path, const std::string& token_file) {
  constexpr std::uint64_t kMemory = 1 << 20;
  const auto tokens = ballast::read_tokens(token_file);
  if (!tokens) return std::unexpected(tokens.error());
  auto weights = ballast::Weights::open(path);
  if (!weights) return std::unexpected(weights.error());
  const auto model = decode(std::move(*weights), ballast::DType::kF32);
  const auto blas = ballast::Blas::load();
  if (!blas) return std::unexpected(blas.error());
  auto pass = ballast::ForwardPass::make(*model, *tokens, **blas, {kMemory, kMemory, kMemory}, 2);
  if (!pass) return std::unexpected(pass.error());
  if (auto done = pass->run_all(); !done) return std::unexpected(done.error());
  const ballast::TextModel& text = pass->text();
  const auto head = pass->reader().linear(
      {.tensor = text.head, .rows = text.vocab, .columns = text.hidden, .shape = {text.vocab, text.hidden}});
  if (!head) return std::unexpected(head.error());
  std::vector<float> hidden(tokens->length * text.hidden);
  std::vector<float> logits(tokens->length * text.vocab);
  if (auto done = pass->hidden().read(0, hidden); !done) return std::unexpected(done.error());
  pass->products().run(*head, hidden.data(), tokens->length, logits.data());
  return json{{"bytes", hex(std::as_bytes(std::span(logits)))}};
}

Result<json> signature(const std::string& url, std::time_t time, std::istringstream rest) {
  ballast::remote::Credentials credentials;
  std::string region;
  rest >> credentials.key_id >> credentials.secret >> region >> credentials.token;
  return json{
      {"headers", ballast::remote::sign_v4({.method = "GET", .url = url, .headers = {}}, region, "s3", credentials, time)}};
}

Result<json> answer(std::istringstream request) {
  std::string command;
  std::string first;
  std::string second;
  std::string rest;
  request >> command >> first >> second >> std::ws;
  std::getline(request, rest);
  if (command == "open" && first == "strict") return contents(second, ballast::Strictness::kStrict);
  if (command == "open" && first == "reference") return contents(second, ballast::Strictness::kReference);
  if (command == "convert") return converted(first, second, rest);
  if (command == "format") return formatted(first, second);
  if (command == "quantized") return quantized(first);
  if (command == "dequantize") return dequantized(first, second, rest);
  if (command == "statistics") return statistics_of(first, static_cast<unsigned>(std::stoul(second)));
  if (command == "logits") return logits_of(first, second);
  if (command == "sign") return signature(first, std::stoll(second), std::istringstream(rest));
  if (command == "slice") return part(first, second, rest);
  return std::unexpected(ballast::Error{.code = Errc::kInvalidArgument, .message = "unknown request"});
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    auto result = answer(std::istringstream(line));
    json reply =
        result ? std::move(*result) : json{{"code", probe_name(result.error().code)}, {"message", result.error().message}};
    reply["ok"] = result.has_value();
    std::cout << reply.dump() << '\n' << std::flush;
  }
}
