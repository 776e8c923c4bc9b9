#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// What the config, or a file beside the weights, says about how the weights are quantized.
struct Declared {
  std::string method;    // quant_method in lower case, or what the file implies; empty if it is not a string
  std::string place;     // for messages: "config.json: quantization_config"
  std::string evidence;  // for messages, with the file: "config.json: quant_method 'gptq'"
  std::string json;      // the section, an object
};

// All such sections except MLX's own, the most specific one first. Of a server it asks for files beside the weights only if some
// tensor may hold codes.
Result<std::vector<Declared>> find_declared(const Model& model);

// A line about two sections that name different quantizers; empty if all agree.
std::string describe_contradiction(std::span<const Declared> declared);

// The dtype that the config gives the weights; empty if there is none or it is not a float of at least 16 bits.
std::optional<DType> config_dtype(const Model& model);

// Whether values of this dtype may be codes of quantized weights. U32 is left out: it holds MLX's codes.
bool may_hold_codes(DType dtype);

// Whether the tensor may be the codes of a quantized weight, of MLX too.
bool holds_codes(const TensorInfo& tensor);

// Typed access to a section, which owns the texts that it gives. Absent keys and null give an empty optional; a value of another
// type is kCorrupt.
class Section {
 public:
  static Result<Section> parse(const Declared& declared);

  Result<std::optional<std::int64_t>> number(std::string_view key) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<std::optional<std::string_view>> text(std::string_view key) const;
  Result<std::optional<std::vector<std::int64_t>>> numbers(std::string_view key) const;
  Result<std::optional<Section>> section(std::string_view key) const;
  // The sections inside this one by key, in order; other values are skipped.
  std::vector<std::pair<std::string_view, Section>> sections() const;
  // The texts of a list; a missing list is empty.
  Result<std::vector<std::string_view>> texts(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }

  simdjson::dom::object object() const { return object_; }
  const std::string& place() const { return place_; }
  // kCorrupt: "config.json: quantization_config: bits is 9, expected 2, 3, 4 or 8"
  std::unexpected<Error> wrong(std::string_view key, std::string_view expected) const;

 private:
  Section(std::shared_ptr<simdjson::dom::parser> parser, simdjson::dom::object object, std::string place)
      : parser_(std::move(parser)), object_(object), place_(std::move(place)) {}
  std::optional<simdjson::dom::element> find(std::string_view key) const;

  std::shared_ptr<simdjson::dom::parser> parser_;  // owns what object_ refers to
  simdjson::dom::object object_;
  std::string place_;
};

}  // namespace ballast
