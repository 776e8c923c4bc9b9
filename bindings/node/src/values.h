#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <napi.h>

#include <ballast/dtype.h>
#include <ballast/lora.h>
#include <ballast/model.h>
#include <ballast/pipeline.h>
#include <ballast/tensor.h>

// Converts values between JavaScript and the core. lib/arguments.ts checks those from JavaScript before.

namespace ballast::node {

std::string text_of(const Napi::Value& value);  // a string, or the bytes of a path
std::vector<std::string> texts_of(const Napi::Value& array);
std::vector<std::pair<std::string, std::string>> pairs_of(const Napi::Value& array);  // [[key, value], …]
Metadata metadata_of(const Napi::Value& array);                                       // [[key, value], …]
std::vector<Lora> loras_of(const Napi::Value& array);                                 // [[path, scale], …]
std::optional<DType> dtype_of(const Napi::Value& value);                              // undefined for none
std::span<std::byte> bytes_of(const Napi::Value& buffer);                             // of an ArrayBuffer

// One of the options of a function. JavaScript passes all of them.
// The components in a report.
Napi::Array components_value(Napi::Env env, std::span<const ComponentReport> components);

// What options say about the files of a directory; `stop` is left out.
OpenOptions open_options(const Napi::Object& options);

inline bool flag(const Napi::Object& options, const char* name) { return options.Get(name).ToBoolean(); }
inline std::uint64_t number(const Napi::Object& options, const char* name) {
  return static_cast<std::uint64_t>(options.Get(name).As<Napi::Number>().Int64Value());
}

inline Napi::Value count_value(Napi::Env env, std::uint64_t count) { return Napi::Number::New(env, static_cast<double>(count)); }
Napi::Value text_value(Napi::Env env, std::string_view text);
Napi::Array texts_value(Napi::Env env, std::span<const std::string> texts);
Napi::Array shape_value(Napi::Env env, Shape shape);
Napi::Value modality_value(Napi::Env env, Modality modality);         // null if unknown
Napi::Array metadata_value(Napi::Env env, const Metadata& metadata);  // [[key, value], …]: a key may be "__proto__"
// {json, usual}: the text of the config, and its numbers under their usual names. Null if there is none.
Napi::Value config_value(Napi::Env env, const std::optional<ModelConfig>& config);

}  // namespace ballast::node
